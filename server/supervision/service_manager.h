// ServiceManager: notifies systemd and reads what it asks for, by the protocol of sd_notify(3) and
// sd_watchdog_enabled(3).
//
// Without a manager (NOTIFY_SOCKET is not set) it does nothing. A message that cannot be sent is
// lost: the manager's time limits cover that. Thread-safe.
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
  // Says that the start goes on and takes up to `from_now` longer, whatever the unit's limit.
  void TakesLonger(absl::string_view status, std::chrono::seconds from_now) const;
  void Ready(absl::string_view status) const;
  // A reload begins; Ready ends it.
  void Reloading() const;
  // Says that the stop takes up to `from_now`.
  void Stopping(absl::string_view status, std::chrono::seconds from_now) const;

  // The longest time that the manager allows between calls of Alive; none: it does not watch.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }
  // May be called at any rate: the manager is told four times in that period.
  void Alive();

 private:
  const Clock* const clock_;
  std::optional<std::chrono::microseconds> watchdog_;
  Mutex mu_;
  std::optional<MonotonicTime> told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
