#include "tiers/store/device_health.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

using std::chrono::seconds;

const absl::Status kError = absl::DataLossError("EIO");
constexpr bool kRead = false, kWrite = true;

void Fail(DeviceHealth& health, bool write, uint32_t times, MonotonicTime now = seconds(1)) {
  for (uint32_t i = 0; i < times; ++i) health.NoteIo(write, kError, now);
}

}  // namespace

TEST_CASE("an error degrades, as many in a row of one kind have it left alone") {
  DeviceHealth health;
  Fail(health, kWrite, DeviceHealth::kErrorsInARow - 1);
  Fail(health, kRead, DeviceHealth::kErrorsInARow - 1);
  CHECK(health.state() == DeviceState::kDegraded);
  CHECK(health.writable());
  CHECK(health.message() == kError.ToString());
  SECTION("what fails in between is forgotten by one that is well, of each kind") {
    health.NoteIo(kWrite, absl::OkStatus(), seconds(1));
    CHECK(health.state() == DeviceState::kDegraded);
    health.NoteIo(kRead, absl::OkStatus(), seconds(1));
    CHECK(health.state() == DeviceState::kOk);
    CHECK(health.message().empty());
  }
  SECTION("writes: it can be read") {
    Fail(health, kWrite, 1);
    CHECK(health.state() == DeviceState::kReadOnly);
    CHECK((health.readable() && !health.writable()));
    Fail(health, kRead, 1);
    CHECK(health.state() == DeviceState::kOffline);
  }
  SECTION("reads") {
    Fail(health, kRead, 1);
    CHECK(health.state() == DeviceState::kOffline);
    CHECK((!health.readable() && !health.writable()));
    Fail(health, kWrite, 100);
    CHECK(health.state() == DeviceState::kOffline);
  }
}

TEST_CASE("one that was left alone is tried again, and is well when both kinds are") {
  DeviceHealth health;
  Fail(health, kRead, DeviceHealth::kErrorsInARow, seconds(100));
  health.RetryIfDue(seconds(99) + DeviceHealth::kRetry);
  CHECK(health.state() == DeviceState::kOffline);
  health.RetryIfDue(seconds(100) + DeviceHealth::kRetry);
  CHECK(health.state() == DeviceState::kDegraded);
  CHECK(health.readable());
  health.NoteIo(kRead, absl::OkStatus(), seconds(200));
  CHECK(health.state() == DeviceState::kOk);
}

TEST_CASE("after a failed sync nothing makes it writable again") {
  DeviceHealth health;
  CHECK(health.failed_sync().ok());
  health.NoteFailedSync(kError);
  health.RetryIfDue(seconds(1'000'000));
  health.NoteIo(kWrite, absl::OkStatus(), seconds(1'000'000));
  CHECK(health.state() == DeviceState::kReadOnly);
  CHECK((health.readable() && !health.writable()));
  CHECK(absl::IsUnavailable(health.failed_sync()));
  Fail(health, kRead, 100);
  CHECK(health.readable());
}

TEST_CASE("one that answers nothing while it is asked is stuck until it does") {
  DeviceHealth health;
  CHECK_FALSE(health.NoteTime(DeviceHealth::kAnswerPatience * 10, /*busy=*/false));
  CHECK_FALSE(health.NoteTime(DeviceHealth::kAnswerPatience - seconds(1), true));
  health.NoteHeard();
  CHECK_FALSE(health.NoteTime(seconds(1), true));
  CHECK_FALSE(health.NoteTime(DeviceHealth::kAnswerPatience - seconds(1), true));
  CHECK(health.NoteTime(seconds(1), true));
  CHECK((health.stuck() && !health.readable() && !health.writable()));
  CHECK(health.state() == DeviceState::kOk);
  CHECK(health.message() == "does not answer: no I/O has ended for 5 s");
  CHECK_FALSE(health.NoteTime(seconds(1), true));  // told once
  health.NoteHeard();
  CHECK_FALSE(health.NoteTime(seconds(1), true));
  CHECK(health.writable());
}

}  // namespace kvkeep::store_internal
