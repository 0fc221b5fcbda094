#include "tiers/io/device_queue.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <numeric>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/units.h"
#include "tiers/io/errno_status.h"

namespace kvkeep {
namespace {

using Kind = IoOperation::Kind;
using Next = DeviceQueue::Outcome::Next;

constexpr size_t kMaxIo = 4 * kBlockBytes;

// A queue and a kernel that holds fragments until the test completes them.
class QueueRig {
 public:
  explicit QueueRig(uint32_t depth, uint64_t max_blocks_out = 1000)
      : queue_(
            {.depth = depth, .max_io_bytes = kMaxIo, .max_bytes_out = max_blocks_out * kBlockBytes},
            &counters_) {}
  ~QueueRig() {  // a queue must end empty
    while (!Issue().empty() || !out_.empty()) CompleteWhole(0);
  }

  void Push(Kind kind, uint64_t block, uint64_t blocks) {
    ++counters_.queued;
    queue_.Push({.kind = kind,
                 .offset = DeviceOffset(block * kBlockBytes),
                 .data = memory_ + block * kBlockBytes,
                 .bytes = blocks * kBlockBytes,
                 .done = [](absl::Status) {}},
                "disk", nullptr);
  }
  // Issues as many as it may; returns the kinds as "RRW".
  std::string Issue() {
    std::string kinds;
    while (std::optional<IoFragment> fragment = queue_.Next()) {
      kinds += fragment->is_read() ? 'R' : 'W';
      out_.push_back(*std::move(fragment));
    }
    return kinds;
  }
  // Ends the `index`th issued fragment with `result`.
  DeviceQueue::Outcome Complete(size_t index, int64_t result) {
    DeviceQueue::Outcome outcome = queue_.OnResult(out_[index], result);
    if (outcome.next == Next::kFinished) out_.erase(out_.begin() + static_cast<ptrdiff_t>(index));
    return outcome;
  }
  DeviceQueue::Outcome CompleteWhole(size_t index) {
    return Complete(index, static_cast<int64_t>(out_[index].bytes));
  }

  IoCounters counters_;
  std::byte* const memory_ = reinterpret_cast<std::byte*>(kGiB);  // never touched
  std::vector<IoFragment> out_;
  DeviceQueue queue_;
};

}  // namespace

TEST_CASE("at most depth fragments are out, the rest waits in order") {
  QueueRig h(3);
  for (uint64_t i = 0; i < 5; ++i) h.Push(Kind::kRead, i, 1);
  CHECK(h.Issue() == "RRR");
  CHECK(h.counters_.in_flight == 3);
  CHECK(h.counters_.queued == 2);
  h.CompleteWhole(1);
  CHECK(h.Issue() == "R");
  CHECK(h.out_.back().offset == 3 * kBlockBytes);
}

TEST_CASE("at most max_bytes_out are out, whatever the depth, and at least one fragment") {
  QueueRig h(100, /*max_blocks_out=*/10);
  h.Push(Kind::kRead, 0, 40);
  CHECK(h.Issue() == "RR");  // of four blocks each
  CHECK(h.Complete(0, kBlockBytes).next == Next::kAgain);
  CHECK(h.Issue().empty());  // seven are out
  CHECK(h.Complete(0, kBlockBytes).next == Next::kAgain);
  CHECK(h.Issue() == "R");
  h.CompleteWhole(0);
  CHECK(h.Issue().empty());
  h.CompleteWhole(0);
  CHECK(h.Issue() == "R");
  h.Push(Kind::kRead, 50, 1);

  QueueRig narrow(100, /*max_blocks_out=*/1);
  narrow.Push(Kind::kRead, 0, 8);
  CHECK(narrow.Issue() == "R");
  CHECK(narrow.out_[0].bytes == kMaxIo);
  narrow.CompleteWhole(0);
  CHECK(narrow.Issue() == "R");
}

TEST_CASE("large writes never hold more than a quarter of the bytes while reads wait") {
  QueueRig h(100, /*max_blocks_out=*/32);
  for (uint64_t i = 0; i < 20; ++i) h.Push(Kind::kWrite, i, 4);
  for (uint64_t i = 20; i < 60; ++i) h.Push(Kind::kRead, i, 4);
  CHECK(h.Issue() == "RRRWRRRW");
  for (int round = 0; round < 20; ++round) {  // only reads complete
    const auto read =
        std::find_if(h.out_.begin(), h.out_.end(), [](const IoFragment& f) { return f.is_read(); });
    h.CompleteWhole(static_cast<size_t>(read - h.out_.begin()));
    CHECK(h.Issue() == "R");
  }
}

TEST_CASE("an operation above max_io_bytes is cut and completes as one") {
  QueueRig h(8);
  h.Push(Kind::kWrite, 2, 9);
  CHECK(h.Issue() == "WWW");
  CHECK(h.out_[0].offset == 2 * kBlockBytes);
  CHECK(h.out_[1].offset == 6 * kBlockBytes);
  CHECK(h.out_[2].offset == 10 * kBlockBytes);
  CHECK(h.out_[2].bytes == kBlockBytes);
  CHECK(h.out_[2].data == h.memory_ + 10 * kBlockBytes);

  CHECK(h.CompleteWhole(1).completed == nullptr);  // any order
  CHECK(h.CompleteWhole(1).completed == nullptr);
  const auto outcome = h.CompleteWhole(0);
  REQUIRE(outcome.completed != nullptr);
  CHECK(outcome.completed->status.ok());
  CHECK(h.counters_.writes == 1);
  CHECK(h.counters_.write_bytes == 9 * kBlockBytes);
  CHECK(h.counters_.in_flight == 0);
}

TEST_CASE("reads go ahead of writes, but a write follows every third read") {
  QueueRig h(1);
  for (uint64_t i = 0; i < 5; ++i) h.Push(Kind::kWrite, i, 1);
  for (uint64_t i = 5; i < 12; ++i) h.Push(Kind::kRead, i, 1);
  std::string order;
  while (true) {
    const std::string issued = h.Issue();
    if (issued.empty()) break;
    order += issued;
    h.CompleteWhole(0);
  }
  CHECK(order == "RRRWRRRWRWWW");
}

TEST_CASE("slow writes never hold more than a quarter of the depth while reads wait") {
  QueueRig h(8);
  for (uint64_t i = 0; i < 20; ++i) h.Push(Kind::kWrite, i, 1);
  for (uint64_t i = 20; i < 60; ++i) h.Push(Kind::kRead, i, 1);
  CHECK(h.Issue() == "RRRWRRRW");
  for (int round = 0; round < 20; ++round) {  // only reads complete
    const auto read =
        std::find_if(h.out_.begin(), h.out_.end(), [](const IoFragment& f) { return f.is_read(); });
    h.CompleteWhole(static_cast<size_t>(read - h.out_.begin()));
    CHECK(h.Issue() == "R");
  }
}

TEST_CASE("writes take the whole depth when no read waits, and reads get the next slots") {
  QueueRig h(4);
  for (uint64_t i = 0; i < 8; ++i) h.Push(Kind::kWrite, i, 1);
  CHECK(h.Issue() == "WWWW");
  h.Push(Kind::kRead, 9, 1);
  h.CompleteWhole(0);
  CHECK(h.Issue() == "R");
}

TEST_CASE("a short result is resumed where it ended, at a block boundary") {
  QueueRig h(1);
  h.Push(Kind::kRead, 0, 4);
  h.Issue();
  CHECK(h.Complete(0, kBlockBytes).next == Next::kAgain);
  CHECK(h.out_[0].offset == kBlockBytes);
  CHECK(h.out_[0].data == h.memory_ + kBlockBytes);
  CHECK(h.out_[0].bytes == 3 * kBlockBytes);

  CHECK(h.Complete(0, kBlockBytes + 700).next == Next::kAgain);  // 700 bytes move again
  CHECK(h.out_[0].offset == 2 * kBlockBytes);
  const auto outcome = h.CompleteWhole(0);
  REQUIRE(outcome.completed != nullptr);
  CHECK(outcome.completed->status.ok());
  CHECK(h.counters_.short_resumed == 2);
  CHECK(h.counters_.read_bytes == 4 * kBlockBytes);
}

TEST_CASE("a device that ends early is DataLoss, at a block boundary or inside a block") {
  QueueRig h(1);
  h.Push(Kind::kRead, 0, 4);
  h.Issue();
  SECTION("at a boundary") {
    CHECK(h.Complete(0, kBlockBytes).next == Next::kAgain);
    const auto outcome = h.Complete(0, 0);
    REQUIRE(outcome.completed != nullptr);
    CHECK(outcome.completed->status.code() == absl::StatusCode::kDataLoss);
  }
  SECTION("inside a block, without trying for ever") {
    uint32_t results = 1;
    DeviceQueue::Outcome outcome = h.Complete(0, 100);
    for (; outcome.next == Next::kAgain; ++results) outcome = h.Complete(0, 100);
    CHECK(results == DeviceQueue::kMaxFruitless);
    REQUIRE(outcome.completed != nullptr);
    CHECK(outcome.completed->status.code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("interrupted and refused I/O is issued again, with an end") {
  QueueRig h(1);
  h.Push(Kind::kWrite, 0, 1);
  h.Issue();
  CHECK(h.Complete(0, -EINTR).next == Next::kAgain);
  CHECK(h.Complete(0, -EAGAIN).next == Next::kAgainLater);
  CHECK(h.Complete(0, -EBUSY).next == Next::kAgainLater);
  CHECK(h.Complete(0, -ENOMEM).next == Next::kAgainLater);
  CHECK(h.counters_.retried == 4);
  DeviceQueue::Outcome outcome{.next = Next::kAgainLater, .pause = std::chrono::milliseconds(1)};
  std::chrono::milliseconds paused{0};
  for (int i = 0; outcome.next != Next::kFinished; ++i) {
    REQUIRE(i < 100);
    const auto before = outcome.pause;
    outcome = h.Complete(0, -EAGAIN);
    paused += outcome.pause;
    if (outcome.next == Next::kAgainLater) CHECK(outcome.pause >= before);
    CHECK(outcome.pause <= DeviceQueue::kLongestPause);
  }
  // As long as memory may be short, and less than the store waits for a silent device.
  CHECK(paused > std::chrono::seconds(3));
  CHECK(paused < std::chrono::seconds(5));
  REQUIRE(outcome.completed != nullptr);
  CHECK(IsHostShort(outcome.completed->status));
  CHECK(outcome.completed->status.code() == absl::StatusCode::kUnavailable);
  CHECK(h.counters_.errors == 1);
  CHECK(h.counters_.writes == 0);
}

TEST_CASE("after a failed fragment the rest of its operation is not issued") {
  QueueRig h(2);
  h.Push(Kind::kRead, 0, 40);
  h.Push(Kind::kRead, 50, 1);
  CHECK(h.Issue() == "RR");
  CHECK(h.Complete(0, -EIO).completed == nullptr);  // one fragment is still out
  CHECK(h.Issue() == "R");
  CHECK(h.out_.back().offset == 50 * kBlockBytes);
  const auto outcome = h.CompleteWhole(0);
  REQUIRE(outcome.completed != nullptr);
  CHECK(outcome.completed->status.code() == absl::StatusCode::kDataLoss);
  CHECK(outcome.completed->status.message() ==
        "disk: read of 16384 bytes at 0: Input/output error (errno 5)");
  CHECK(h.counters_.queued == 0);
}

TEST_CASE("giving up ends what waits at once, and what is out when it is back") {
  QueueRig h(2);
  h.Push(Kind::kRead, 0, 40);  // two fragments out, the rest waits
  h.Push(Kind::kRead, 50, 1);
  h.Push(Kind::kWrite, 60, 1);
  h.Issue();
  const auto completed = h.queue_.FailWaiting(absl::UnavailableError("stopping"));
  CHECK(completed.size() == 2);
  CHECK_FALSE(h.queue_.has_waiting());
  CHECK(h.counters_.queued == 0);
  CHECK(h.CompleteWhole(0).completed == nullptr);
  const auto outcome = h.CompleteWhole(0);
  REQUIRE(outcome.completed != nullptr);
  CHECK(outcome.completed->status.code() == absl::StatusCode::kUnavailable);
  CHECK(h.counters_.errors == 3);
}

TEST_CASE("whatever the results, every operation completes exactly once") {
  const uint64_t seed = GENERATE(range(1, 40));
  CAPTURE(seed);
  SeededRandom random(seed);
  QueueRig h(static_cast<uint32_t>(random.Between(1, 9)), random.Between(1, 40));
  uint64_t pushed = 0, completed = 0;
  while (pushed < 200 || completed < pushed) {
    if (pushed < 200 && random.Chance(0.4)) {
      h.Push(random.Chance(0.5) ? Kind::kRead : Kind::kWrite, random.Below(1000),
             random.Between(1, 20));
      ++pushed;
    }
    h.Issue();
    if (h.out_.empty()) continue;
    const size_t index = random.Below(h.out_.size());
    const size_t bytes = h.out_[index].bytes;
    int64_t result = static_cast<int64_t>(bytes);
    if (random.Chance(0.2)) result = static_cast<int64_t>(random.Between(1, bytes));
    if (random.Chance(0.1)) result = random.Chance(0.5) ? -EAGAIN : -EINTR;
    if (random.Chance(0.02)) result = -EIO;
    const auto outcome = h.Complete(index, result);
    if (outcome.completed == nullptr) continue;
    ++completed;
    CHECK(outcome.completed->fragments_out == 0);
    CHECK(outcome.completed->cut_bytes == outcome.completed->operation.bytes);
  }
  CHECK(h.counters_.reads + h.counters_.writes + h.counters_.errors == 200);
  CHECK(h.counters_.queued == 0);
  CHECK(h.counters_.in_flight == 0);
}

}  // namespace kvkeep
