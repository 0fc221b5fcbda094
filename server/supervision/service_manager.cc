#include "server/supervision/service_manager.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include <string>

namespace kvkeep {
namespace {

void Tell(const std::string& message) { (void)sd_notify(/*unset_environment=*/0, message.c_str()); }

// The protocol ends a field with its line.
std::string StatusLine(absl::string_view text) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(text, {{"\n", " "}}));
}

std::string ExtendTimeout(std::chrono::microseconds from_now) {
  return absl::StrCat("EXTEND_TIMEOUT_USEC=", from_now.count());
}

}  // namespace

ServiceManager::ServiceManager(const Clock* clock) : clock_(clock) {
  uint64_t period_us = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &period_us) > 0) {
    watchdog_ = std::chrono::microseconds(period_us);
  }
}

void ServiceManager::Status(absl::string_view text) const { Tell(StatusLine(text)); }

void ServiceManager::TakesLonger(absl::string_view status, std::chrono::seconds from_now) const {
  Tell(absl::StrCat(StatusLine(status), "\n", ExtendTimeout(from_now)));
}

void ServiceManager::Ready(absl::string_view status) const {
  Tell(absl::StrCat("READY=1\n", StatusLine(status)));
}

void ServiceManager::Reloading() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // the manager compares it with its own
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  Tell(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", us.count(), "\n",
                    StatusLine("reading the config")));
}

void ServiceManager::Stopping(absl::string_view status, std::chrono::seconds from_now) const {
  Tell(absl::StrCat("STOPPING=1\n", StatusLine(status), "\n", ExtendTimeout(from_now)));
}

void ServiceManager::Alive() {
  if (!watchdog_.has_value()) return;
  {
    MutexLock lock(&mu_);
    const MonotonicTime now = clock_->Now();
    if (told_.has_value() && now - *told_ < *watchdog_ / 4) return;
    told_ = now;
  }
  Tell("WATCHDOG=1");
}

}  // namespace kvkeep
