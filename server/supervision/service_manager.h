// ServiceManager: what systemd is told, and what it asks for (sd_notify(3),
// sd_watchdog_enabled(3)).
//
// Where no manager asked (NOTIFY_SOCKET is not set) nothing happens. A message that cannot be sent
// is lost: the manager's time limits are there for that. Thread-safe.
#pragma once

#include <absl/strings/string_view.h>

#include <chrono>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class ServiceManager {
 public:
  // Reads the environment. `clock` must outlive it.
  explicit ServiceManager(const Clock* clock);

  // One line for `systemctl status`.
  void Status(absl::string_view text) const;
  // The start goes on and takes up to so long from now, whatever the unit's limit.
  void TakesLonger(absl::string_view status, std::chrono::seconds from_now) const;
  void Ready(absl::string_view status) const;
  // A reload begins; Ready ends it.
  void Reloading() const;
  // The stop takes up to so long.
  void Stopping(absl::string_view status, std::chrono::seconds from_now) const;

  // How often it wants to hear Alive at the least; none: it does not watch.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }
  // May be called more often: told four times in that period.
  void Alive();

 private:
  const Clock* const clock_;
  std::optional<std::chrono::microseconds> watchdog_;
  Mutex mu_;
  std::optional<MonotonicTime> told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
