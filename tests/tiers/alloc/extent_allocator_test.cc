#include "tiers/alloc/extent_allocator.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <initializer_list>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// The mini language: an allocator of plain numbers, checked after every step.
class Tier {
 public:
  explicit Tier(uint64_t capacity, uint64_t barrier = 0)
      : allocator_({.capacity = BlockCount(capacity), .barrier_blocks = BlockCount(barrier)}) {}

  // "12+3 20+1" = 3 blocks at 12 and one at 20; "none" when there is no room.
  std::string Take(uint64_t blocks, std::optional<uint64_t> near = std::nullopt) {
    std::optional<BlockNumber> behind;
    if (near.has_value()) behind = BlockNumber(*near);
    const auto extents = allocator_.Allocate(BlockCount(blocks), behind);
    allocator_.CheckInvariants();
    if (!extents.has_value()) return "none";
    std::string text;
    for (const Extent& extent : *extents) {
      absl::StrAppend(&text, text.empty() ? "" : " ", extent.first.value(), "+",
                      extent.count.value());
    }
    return text;
  }
  void Free(std::initializer_list<std::pair<uint64_t, uint64_t>> extents) {
    allocator_.Free(List(extents));
    allocator_.CheckInvariants();
  }
  absl::Status Claim(std::initializer_list<std::pair<uint64_t, uint64_t>> extents) {
    absl::Status status = allocator_.Claim(List(extents));
    allocator_.CheckInvariants();
    return status;
  }
  void EndRecovery() { allocator_.EndRecovery(); }
  uint64_t free_blocks() const { return allocator_.free_blocks().value(); }
  uint64_t largest() const { return allocator_.largest_free_run().value(); }
  size_t runs() const { return allocator_.free_runs(); }
  const ExtentAllocator::Stats& stats() const { return allocator_.stats(); }

 private:
  static ExtentList List(std::initializer_list<std::pair<uint64_t, uint64_t>> extents) {
    ExtentList list;
    for (const auto& [first, count] : extents) {
      list.push_back({BlockNumber(first), BlockCount(count)});
    }
    return list;
  }

  ExtentAllocator allocator_;
};

// Runs `body` in a child process. Returns true if it aborted, as a failed check does.
template <typename Body>
bool Aborts(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The failed check's message is expected, so it stays out of the test's output.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    std::signal(SIGABRT, SIG_DFL);  // Catch2's handler would report it as this test's failure
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

TEST_CASE("a new allocator is one free run, or one run per barrier and a short last one") {
  Tier plain(100);
  CHECK(plain.runs() == 1);
  CHECK(plain.largest() == 100);
  Tier cut(100, 30);
  CHECK(cut.runs() == 4);
  CHECK(cut.largest() == 30);
  CHECK(cut.free_blocks() == 100);
  CHECK(Tier(60, 30).runs() == 2);
  CHECK(Tier(20, 30).runs() == 1);
}

TEST_CASE("the shortest run that is long enough is taken, the lowest of equals, from its front") {
  Tier tier(100);
  REQUIRE(tier.Take(100) == "0+100");
  tier.Free({{10, 5}, {30, 8}, {50, 5}, {70, 20}});
  CHECK(tier.Take(4) == "10+4");
  CHECK(tier.Take(5) == "50+5");
  CHECK(tier.Take(6) == "30+6");
  CHECK(tier.Take(2) == "36+2");
  CHECK(tier.Take(1) == "14+1");
  CHECK(tier.runs() == 1);
  CHECK(tier.stats().split_allocations == 0);
}

TEST_CASE("free neighbours become one run on both sides, in any order of freeing") {
  Tier tier(30);
  REQUIRE(tier.Take(30) == "0+30");
  tier.Free({{0, 10}});
  tier.Free({{20, 10}});
  CHECK(tier.runs() == 2);
  tier.Free({{10, 10}});
  CHECK(tier.runs() == 1);
  CHECK(tier.largest() == 30);

  REQUIRE(tier.Take(30) == "0+30");
  tier.Free({{10, 10}});
  tier.Free({{20, 10}});  // joins the run below only
  CHECK(tier.largest() == 20);
  tier.Free({{0, 10}});  // joins the run above only
  CHECK(tier.largest() == 30);
}

TEST_CASE("neither a run nor an extent crosses a barrier") {
  Tier tier(20, 10);
  CHECK(tier.Take(15) == "0+10 10+5");
  CHECK(tier.stats().split_allocations == 1);
  tier.Free({{0, 10}, {10, 5}});
  CHECK(tier.runs() == 2);
  CHECK(tier.largest() == 10);
}

TEST_CASE("no claim crosses a barrier") {
  Tier tier(20, 10);
  CHECK(tier.Claim({{8, 4}}).code() == absl::StatusCode::kOutOfRange);
  CHECK(tier.Claim({{8, 2}, {10, 2}}).ok());
  CHECK(tier.largest() == 8);
  tier.Free({{8, 2}, {10, 2}});
  CHECK(tier.runs() == 2);
  CHECK(tier.Take(15) == "0+10 10+5");
}

TEST_CASE("a run that starts right behind the parent beats the best fit, when it is long enough") {
  Tier tier(100);
  REQUIRE(tier.Take(100) == "0+100");
  tier.Free({{10, 4}, {40, 30}});
  CHECK(tier.Take(4, 40) == "40+4");
  CHECK(tier.stats().near_hits == 1);
  CHECK(tier.Take(4, 50) == "10+4");  // a block within a run is not right behind anything
  CHECK(tier.Take(20, 44) == "44+20");
  CHECK(tier.Take(3, 99) == "64+3");         // taken
  CHECK(tier.Take(1, 1'000'000) == "67+1");  // beyond the tier
  CHECK(tier.Take(3, 68) == "none");
  CHECK(tier.stats().near_hits == 2);
}

TEST_CASE("a chunk behind its parent stays one run: children of children line up") {
  Tier tier(100);
  CHECK(tier.Take(7) == "0+7");
  CHECK(tier.Take(7, 7) == "7+7");
  CHECK(tier.Take(7, 14) == "14+7");
}

TEST_CASE("when no run fits, the fewest extents are used and come in address order") {
  Tier tier(100);
  REQUIRE(tier.Take(100) == "0+100");
  tier.Free({{5, 3}, {20, 9}, {40, 6}, {60, 2}, {80, 10}});
  CHECK(tier.Take(12) == "60+2 80+10");  // longest first, the last piece where it fits best
  CHECK(tier.Take(14) == "20+9 40+5");
  CHECK(tier.Take(4) == "5+3 45+1");
  CHECK(tier.free_blocks() == 0);
  CHECK(tier.stats().split_allocations == 3);
  CHECK(tier.stats().allocations == 4);
  CHECK(tier.stats().extents_allocated == 7);
}

TEST_CASE("32 extents are given, 33 are not, and a failed request leaves nothing behind") {
  Tier tier(100);
  REQUIRE(tier.Take(100) == "0+100");
  for (uint64_t i = 0; i < 33; ++i) tier.Free({{3 * i, 1}});
  CHECK(tier.Take(33) == "none");
  CHECK(tier.stats().failed_allocations == 1);
  CHECK(tier.free_blocks() == 33);
  CHECK(tier.runs() == 33);
  const std::string taken = tier.Take(32);
  CHECK(std::count(taken.begin(), taken.end(), '+') == 32);
  CHECK(tier.free_blocks() == 1);
}

TEST_CASE("space is given to the last block, and not one more") {
  Tier tier(1);
  CHECK(tier.Take(2) == "none");
  CHECK(tier.Take(1) == "0+1");
  CHECK(tier.Take(1) == "none");
  CHECK(tier.Take(1, 0) == "none");
  CHECK(tier.free_blocks() == 0);
  CHECK(tier.largest() == 0);
  CHECK(tier.runs() == 0);
  tier.Free({{0, 1}});
  CHECK(tier.Take(UINT64_MAX) == "none");
  CHECK(tier.stats().failed_allocations == 4);
}

TEST_CASE("Claim takes exactly the blocks it names, from the front, middle and end of a run") {
  Tier tier(100);
  CHECK(tier.Claim({{0, 10}, {50, 10}, {90, 10}}).ok());
  CHECK(tier.free_blocks() == 70);
  CHECK(tier.runs() == 2);
  CHECK(tier.Claim({{60, 30}}).ok());  // a whole run
  CHECK(tier.runs() == 1);
  tier.Free({{50, 10}, {90, 10}});  // one that is given up again before recovery is over
  CHECK(tier.Take(50) == "10+50");
  CHECK(tier.Take(10) == "90+10");
  CHECK(tier.free_blocks() == 0);
}

TEST_CASE("a claim after the first allocation, or after recovery, fails a check") {
  CHECK(Aborts([] {
    Tier tier(10);
    if (tier.Take(1) != "0+1") _exit(3);
    tier.Claim({{5, 1}}).IgnoreError();
  }));
  CHECK(Aborts([] {
    Tier tier(10);
    tier.EndRecovery();
    tier.Claim({{5, 1}}).IgnoreError();
  }));
}

TEST_CASE("Claim is all or nothing and says what is wrong") {
  Tier tier(100, 50);
  REQUIRE(tier.Claim({{10, 10}}).ok());
  const auto refused = [&](std::initializer_list<std::pair<uint64_t, uint64_t>> extents) {
    const absl::StatusCode code = tier.Claim(extents).code();
    CHECK(tier.free_blocks() == 90);
    CHECK(tier.runs() == 3);
    return code;
  };
  CHECK(refused({{0, 5}, {30, 5}, {15, 1}}) == absl::StatusCode::kAlreadyExists);
  CHECK(refused({{0, 11}}) == absl::StatusCode::kAlreadyExists);           // overlaps from below
  CHECK(refused({{19, 10}}) == absl::StatusCode::kAlreadyExists);          // and from above
  CHECK(refused({{5, 20}}) == absl::StatusCode::kAlreadyExists);           // and all over
  CHECK(refused({{60, 5}, {64, 5}}) == absl::StatusCode::kAlreadyExists);  // by this very list
  CHECK(refused({{0, 5}, {98, 3}}) == absl::StatusCode::kOutOfRange);
  CHECK(refused({{100, 1}}) == absl::StatusCode::kOutOfRange);
  CHECK(refused({{UINT64_MAX, 2}}) == absl::StatusCode::kOutOfRange);  // the sum overflows
  CHECK(refused({{1, UINT64_MAX}}) == absl::StatusCode::kOutOfRange);
  CHECK(refused({{0, 5}, {49, 2}}) == absl::StatusCode::kOutOfRange);  // crosses the barrier
  CHECK(refused({{0, 5}, {7, 0}}) == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(tier.Claim({{15, 2}}).message()), Catch::Contains("2 blocks at 15"));
}

TEST_CASE("freeing what is not allocated fails a check") {
  const bool recovered = GENERATE(false, true);
  CAPTURE(recovered);
  const auto free_aborts = [=](std::initializer_list<std::pair<uint64_t, uint64_t>> extents) {
    return Aborts([&] {
      Tier tier(100, 50);
      if (!tier.Claim({{0, 20}, {30, 20}, {50, 10}}).ok()) _exit(3);
      if (recovered) tier.EndRecovery();
      tier.Free(extents);
    });
  };
  CHECK_FALSE(free_aborts({{0, 20}, {30, 20}, {50, 10}}));
  CHECK(free_aborts({{20, 5}}));               // free already
  CHECK(free_aborts({{0, 20}, {0, 20}}));      // twice
  CHECK(free_aborts({{15, 10}}));              // partly free, from below
  CHECK(free_aborts({{25, 10}}));              // and from above
  CHECK(free_aborts({{10, 30}}));              // free in the middle
  CHECK(free_aborts({{45, 10}}));              // across a barrier
  CHECK(free_aborts({{99, 2}}));               // beyond the end
  CHECK(free_aborts({{0, 0}}));                // empty
  CHECK(free_aborts({{UINT64_MAX - 4, 10}}));  // the sum overflows
}

TEST_CASE("nothing can be asked of nothing") {
  CHECK_FALSE(Aborts([] { Tier(10).Take(1); }));
  CHECK(Aborts([] { Tier(10).Take(0); }));
  CHECK(Aborts([] { Tier(0); }));
}

TEST_CASE("options that make no sense are refused with the field's name") {
  using Options = ExtentAllocator::Options;
  const auto message = [](uint64_t capacity, uint64_t barrier) {
    const Options options{.capacity = BlockCount(capacity), .barrier_blocks = BlockCount(barrier)};
    return std::string(options.Validate().message());
  };
  CHECK(message(1, 0).empty());
  CHECK(message(1, 1).empty());
  CHECK(message(1 << 20, 1).empty());
  CHECK(message(1, UINT64_MAX).empty());
  CHECK_THAT(message(0, 0), Catch::StartsWith("capacity"));
  CHECK_THAT(message(UINT64_MAX, 0), Catch::StartsWith("capacity"));
  CHECK_THAT(message((1 << 20) + 1, 1), Catch::StartsWith("barrier_blocks"));
}

// Not run by default: prints the cost of an operation at 95 % fill.
TEST_CASE("cost of one operation at 95 % fill", "[.][bench]") {
  constexpr uint64_t kBlocks = uint64_t{16} << 20;  // 64 GiB
  ExtentAllocator allocator(
      {.capacity = BlockCount(kBlocks), .barrier_blocks = BlockCount(kGiB / kBlockBytes)});
  SeededRandom random(1);
  std::vector<ExtentList> held;
  const auto take = [&] {
    auto extents = allocator.Allocate(BlockCount(random.Between(128, 1024)));
    KVKEEP_CHECK(extents.has_value());  // REQUIRE would be part of what is measured
    held.push_back(*std::move(extents));
  };
  while (allocator.free_blocks().value() > kBlocks / 20) take();
  constexpr int kRounds = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    std::swap(held[random.Below(held.size())], held.back());
    allocator.Free(held.back());
    held.pop_back();
    take();
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  std::printf("%.3f us per operation, %zu chunks, %zu free runs, %.3f extents per chunk\n",
              took.count() / (2.0 * kRounds), held.size(), allocator.free_runs(),
              static_cast<double>(allocator.stats().extents_allocated) /
                  static_cast<double>(allocator.stats().allocations));
}

}  // namespace kvkeep
