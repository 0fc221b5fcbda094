// DeviceHealth: how a device is, by what became of its reads, writes, index batches and syncs. The
// circuit breaker:
//
//   ok ---an error---> degraded --kErrorsInARow of one kind--> read-only (writes), offline (reads)
//    ^                  |    ^                                   |
//    +--- all is well --+    +----------- kRetry later ----------+
//
// A failed sync makes it read-only until it is opened anew. One that answers nothing fails nothing
// either: after kAnswerPatience it is stuck, and left alone as if it was offline until anything
// ends, so that nobody waits for it.
//
// Owned by the device's tier; the store's lock protects it. Whether the device has joined is not
// its business.
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

  // What an operation came to. An error that says nothing about the device is not to be told.
  void NoteIo(bool write, const absl::Status& status, MonotonicTime now);
  void NoteFailedSync(const absl::Status& status);
  void NoteHeard() { heard_ = true; }  // something has ended
  // Now and then: so long after the last time; `busy`: there is something to hear of. True: it is
  // stuck from now on.
  bool NoteTime(std::chrono::nanoseconds passed, bool busy);
  void RetryIfDue(MonotonicTime now);

  // Not whether it is stuck.
  DeviceState state() const { return state_; }
  bool stuck() const { return stuck_; }
  bool readable() const { return state_ != DeviceState::kOffline && !stuck_; }
  bool writable() const {
    const bool takes = state_ == DeviceState::kOk || state_ == DeviceState::kDegraded;
    return takes && !failed_sync_ && !stuck_;
  }
  // OK, or the one sync that failed.
  absl::Status failed_sync() const;
  bool sync_failed() const { return failed_sync_; }
  std::string message() const;  // why it is not well

 private:
  std::string message_;
  uint32_t read_errors_ = 0, write_errors_ = 0;  // in a row
  MonotonicTime retry_at_{0};
  std::chrono::nanoseconds silent_for_{0};  // while there was something to hear of
  bool heard_ = false;                      // since the last NoteTime
  // Looked at for each chunk that is written, of all devices: last, beside what is in DeviceTier.
  DeviceState state_ = DeviceState::kOk;
  bool failed_sync_ = false, stuck_ = false;
};

}  // namespace kvkeep::store_internal
