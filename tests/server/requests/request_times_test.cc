#include "server/requests/request_times.h"

#include <fcntl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "server/observe/process_stats.h"
#include "tests/fakes/manual_clock.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

using std::chrono::milliseconds;

TEST_CASE("a request's time goes to its operation and listener, and only slow ones are told of") {
  ManualClock clock;
  RequestTimes times(&clock);
  std::vector<SlowRequest> told;
  times.OnSlow([&told](const SlowRequest& slow) { told.push_back(slow); });
  int asked = 0;
  const auto note = [&](Listener listener, Operation operation, milliseconds took) {
    const MonotonicTime began = times.Now();
    clock.Advance(took);
    times.Note({listener, operation}, began, [&asked] {
      ++asked;
      return Requester{.peer = "pid=7", .keys = 3};
    });
  };
  note(Listener::kLocal, Operation::kGet, milliseconds(5000));
  CHECK(told.empty());  // off
  times.SetSlow(milliseconds(100));
  note(Listener::kLocal, Operation::kGet, milliseconds(99));
  CHECK(asked == 0);
  note(Listener::kGrpc, Operation::kPut, milliseconds(100));
  REQUIRE(told.size() == 1);
  CHECK(told[0].listener == Listener::kGrpc);
  CHECK(told[0].operation == Operation::kPut);
  CHECK(told[0].took == milliseconds(100));
  CHECK(told[0].requester.peer == "pid=7");
  CHECK(told[0].requester.keys == 3);
  CHECK(times.counts(Listener::kLocal, Operation::kGet).count() == 2);
  CHECK(times.counts(Listener::kLocal, Operation::kGet).sum == 5'099'000'000);
  CHECK(times.counts(Listener::kGrpc, Operation::kPut).count() == 1);
  CHECK(times.counts(Listener::kGrpc, Operation::kGet).count() == 0);
  CHECK(times.counts(Listener::kLocal, Operation::kDelete).count() == 0);
}

TEST_CASE("requests are counted by how they ended, those of rare codes together") {
  ManualClock clock;
  RequestTimes times(&clock);
  const auto note = [&](Listener listener, absl::StatusCode code) {
    times.Note({listener, Operation::kPut, code}, times.Now(), [] { return Requester{}; });
  };
  const auto count = [&](Listener listener, absl::StatusCode code) {
    const auto* const at = std::find(kRequestCodes.begin(), kRequestCodes.end(), code);
    return times.count(listener, Operation::kPut, static_cast<size_t>(at - kRequestCodes.begin()));
  };
  for (const Listener listener : {Listener::kGrpc, Listener::kLocal}) {
    note(listener, absl::StatusCode::kOk);
    note(listener, absl::StatusCode::kOk);
    note(listener, absl::StatusCode::kResourceExhausted);
    note(listener, absl::StatusCode::kOutOfRange);
    note(listener, absl::StatusCode::kUnknown);
    CHECK(count(listener, absl::StatusCode::kOk) == 2);
    CHECK(count(listener, absl::StatusCode::kResourceExhausted) == 1);
    CHECK(count(listener, absl::StatusCode::kUnknown) == 2);
    CHECK(count(listener, absl::StatusCode::kDataLoss) == 0);
  }
  CHECK(times.count(Listener::kGrpc, Operation::kGet, 0) == 0);
}

TEST_CASE("what the kernel tells of this process can be true") {
  const ProcessStats before = ReadProcessStats();
  const auto now = static_cast<double>(RealClock()->UnixMicros()) / 1e6;
  CHECK(before.start_unix_seconds <= now + 1);
  CHECK(before.start_unix_seconds > now - 7 * 86'400);
  CHECK(before.resident_bytes > 1'000'000);
  CHECK(before.virtual_bytes >= before.resident_bytes);
  CHECK(before.threads >= 1);
  CHECK(before.open_fds >= 3);
  CHECK(before.open_fds <= before.max_fds);
  const UniqueFd one_more(open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(ReadProcessStats().open_fds == before.open_fds + 1);
  const MonotonicTime until = ThreadCpuClock()->Now() + milliseconds(50);
  while (ThreadCpuClock()->Now() < until) {
  }
  CHECK(ReadProcessStats().cpu_seconds >= before.cpu_seconds + 0.03);
}

}  // namespace kvkeep
