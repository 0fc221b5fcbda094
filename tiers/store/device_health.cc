#include "tiers/store/device_health.h"

#include <absl/strings/str_cat.h>

#include <utility>

namespace kvkeep::store_internal {

void DeviceHealth::NoteIo(bool write, const absl::Status& status, MonotonicTime now) {
  uint32_t& errors = write ? write_errors_ : read_errors_;
  if (status.ok()) {
    errors = 0;
    if (state_ == DeviceState::kDegraded && read_errors_ + write_errors_ == 0) {
      state_ = DeviceState::kOk;
      message_.clear();
    }
    return;
  }
  if (state_ == DeviceState::kOffline || failed_sync_) return;
  message_ = status.ToString();
  if (++errors < kErrorsInARow) {
    if (state_ == DeviceState::kOk) state_ = DeviceState::kDegraded;
    return;
  }
  state_ = write ? DeviceState::kReadOnly : DeviceState::kOffline;
  retry_at_ = now + kRetry;
}

// A failed sync is not tried again, since the kernel may have dropped the pages.
void DeviceHealth::NoteFailedSync(const absl::Status& status) {
  failed_sync_ = true;
  state_ = DeviceState::kReadOnly;
  message_ = absl::StrCat("sync failed, so it takes no writes until it is opened anew: ",
                          status.ToString());
}

bool DeviceHealth::NoteTime(std::chrono::nanoseconds passed, bool busy) {
  silent_for_ += passed;
  if (std::exchange(heard_, false) || !busy) {
    silent_for_ = {};
    stuck_ = false;
  } else if (!stuck_ && silent_for_ >= kAnswerPatience) {
    return stuck_ = true;
  }
  return false;
}

void DeviceHealth::RetryIfDue(MonotonicTime now) {
  const bool resting = state_ == DeviceState::kReadOnly || state_ == DeviceState::kOffline;
  if (!resting || failed_sync_ || now < retry_at_) return;
  state_ = DeviceState::kDegraded;
  read_errors_ = write_errors_ = 0;
}

absl::Status DeviceHealth::failed_sync() const {
  return failed_sync_ ? absl::UnavailableError(message_) : absl::OkStatus();
}

std::string DeviceHealth::message() const {
  if (!stuck_) return message_;
  return absl::StrCat("does not answer: no I/O has ended for ",
                      std::chrono::duration_cast<std::chrono::seconds>(silent_for_).count(), " s");
}

}  // namespace kvkeep::store_internal
