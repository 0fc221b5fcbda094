// DeviceHealth: the state of a device, by the outcomes of its reads, writes, index batches and
// syncs. It is a circuit breaker:
//
//   ok ---an error---> degraded --kErrorsInARow of one kind--> read-only (writes), offline (reads)
//    ^                  |    ^                                   |
//    +--- all is well --+    +----------- kRetry later ----------+
//
// A failed sync makes the device read-only until it is opened anew. A device that does not answer
// fails no operation either: after kAnswerPatience it is stuck. It is treated as offline until some
// operation ends, so that nobody waits for it.
//
// Owned by the device's tier. The store's lock protects it. It does not know whether the device has
// joined.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class DeviceHealth {
 public:
  static constexpr uint32_t kErrorsInARow = 3;
  static constexpr std::chrono::seconds kRetry{30}, kAnswerPatience{5};

  // Notes the outcome of an operation. Do not call it for an error that says nothing of the device.
  void NoteIo(bool write, const absl::Status& status, MonotonicTime now);
  void NoteFailedSync(const absl::Status& status);
  void NoteHeard() { heard_ = true; }  // an operation has ended
  // Notes that time has passed since the last call. `busy`: operations are under way. Returns true
  // if the device is stuck from now on.
  bool NoteTime(std::chrono::nanoseconds passed, bool busy);
  void RetryIfDue(MonotonicTime now);

  // Does not say whether the device is stuck.
  DeviceState state() const { return state_; }
  bool stuck() const { return stuck_; }
  bool readable() const { return state_ != DeviceState::kOffline && !stuck_; }
  bool writable() const {
    const bool takes = state_ == DeviceState::kOk || state_ == DeviceState::kDegraded;
    return takes && !failed_sync_ && !stuck_;
  }
  // Returns the error of the sync that failed, or OK.
  absl::Status failed_sync() const;
  bool sync_failed() const { return failed_sync_; }
  std::string message() const;  // why it is not well

 private:
  std::string message_;
  uint32_t read_errors_ = 0, write_errors_ = 0;  // in a row
  MonotonicTime retry_at_{0};
  std::chrono::nanoseconds silent_for_{0};  // while there was something to hear of
  bool heard_ = false;                      // since the last NoteTime
  // These are last, beside DeviceTier's fields that are read for each write, of all devices.
  DeviceState state_ = DeviceState::kOk;
  bool failed_sync_ = false, stuck_ = false;
};

}  // namespace kvkeep::store_internal
