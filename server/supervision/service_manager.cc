#include "server/supervision/service_manager.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

// Sends one datagram to NOTIFY_SOCKET: a path, or a name in the abstract namespace after an '@'.
void Tell(absl::string_view message) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  const absl::string_view name = named == nullptr ? "" : named;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const bool abstract = absl::StartsWith(name, "@");
  if (!abstract && !absl::StartsWith(name, "/")) return;
  if (name.size() >= sizeof(address.sun_path)) return;
  name.copy(address.sun_path, name.size());
  if (abstract) address.sun_path[0] = '\0';
  // An abstract name has no end but the address's; a path ends with a zero.
  const size_t bytes = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  static_cast<void>(sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address),
                           static_cast<socklen_t>(bytes)));
}

// Returns WATCHDOG_USEC where it is a time and meant for this process.
std::optional<std::chrono::microseconds> WatchdogPeriod() {
  const char* const period = std::getenv("WATCHDOG_USEC");
  const char* const process = std::getenv("WATCHDOG_PID");
  int64_t us = 0, pid = getpid();
  if (period == nullptr || !absl::SimpleAtoi(period, &us) || us <= 0) return std::nullopt;
  if (process != nullptr && (!absl::SimpleAtoi(process, &pid) || pid != getpid())) {
    return std::nullopt;
  }
  return std::chrono::microseconds(us);
}

// The protocol ends a field with its line.
std::string StatusLine(absl::string_view text) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(text, {{"\n", " "}}));
}

std::string ExtendTimeout(std::chrono::microseconds from_now) {
  return absl::StrCat("EXTEND_TIMEOUT_USEC=", from_now.count());
}

}  // namespace

ServiceManager::ServiceManager(const Clock* clock) : clock_(clock), watchdog_(WatchdogPeriod()) {}

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
