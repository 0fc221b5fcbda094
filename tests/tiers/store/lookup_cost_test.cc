// A lookup's estimate of the time until its chunks are readable.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/tiers/store/store_tester.h"
#include "tiers/base/wire_time.h"
#include "tiers/store/read_speed.h"

namespace kvkeep {
namespace {

constexpr uint64_t kImageBytes = 2 * kBlockBytes;  // header and 4096 bytes

std::vector<uint64_t> Names(uint64_t count) {
  std::vector<uint64_t> names(count);
  std::iota(names.begin(), names.end(), 0);
  return names;
}

// Chunks that only G3 has.
void PutAndRestart(StoreTester& s, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.Settle();
  }
  s.KillAndStart();
}

std::chrono::nanoseconds CostOf(StoreTester& s, const std::vector<uint64_t>& names) {
  return s.Lookup(names, LeaseMode::kNone).promotion_time;
}

// Returns the estimate before any read.
std::chrono::nanoseconds Guess(uint64_t images) {
  return store_internal::ReadSpeed().TimeFor(images * kImageBytes, MonotonicTime(0));
}

}  // namespace

TEST_CASE("a lookup costs nothing in G2, and by its bytes where only G3 has them") {
  StoreTester s;
  PutAndRestart(s, 4);
  REQUIRE(s.Put(10) == "stored");
  CHECK(CostOf(s, {10}).count() == 0);
  CHECK(CostOf(s, {99}).count() == 0);
  CHECK(CostOf(s, {0}) == Guess(1));
  CHECK(CostOf(s, {0, 1, 2, 3}) == Guess(4));
  CHECK(CostOf(s, {0, 10, 1}) == Guess(2));     // one of them is in G2
  CHECK(CostOf(s, {0, 99, 1, 2}) == Guess(1));  // nothing waits beyond the leading run
  CHECK(CostOf(s, {99, 0, 1}).count() == 0);
}

TEST_CASE("a lookup's cost is that of its whole leading run, however many slices it is found in") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {4096};
  StoreTester s(options);
  PutAndRestart(s, 1200);
  std::vector<uint64_t> names = Names(1200);
  CHECK(CostOf(s, names) == Guess(1200));
  names[1000] = 99'999;
  CHECK(CostOf(s, names) == Guess(1000));
  names[3] = 99'998;
  CHECK(CostOf(s, names) == Guess(3));
}

TEST_CASE("what is on its way already is waited for, and not counted twice") {
  StoreTester s;
  PutAndRestart(s, 4);
  ChunkReader reader = s.Pin(0);  // begins its promotion; nothing runs yet
  REQUIRE(reader);
  CHECK(CostOf(s, {0}) == Guess(1));
  CHECK(CostOf(s, {1}) == Guess(2));  // behind it
  CHECK(CostOf(s, {0, 1}) == Guess(2));
  s.RunAll();
  CHECK(CostOf(s, {0}).count() == 0);
}

TEST_CASE("a lookup's cost follows what the device has shown") {
  StoreTester s;
  PutAndRestart(s, 20);
  for (uint64_t i = 0; i < 12; ++i) {
    ChunkReader reader = s.Pin(i);
    s.world.clock().Advance(std::chrono::milliseconds(3));
    s.RunAll();
  }
  CHECK(CostOf(s, {15}) > std::chrono::microseconds(2990));
  CHECK(CostOf(s, {15}) < std::chrono::microseconds(3010));
  CHECK(CostOf(s, {15, 16}) > std::chrono::microseconds(5980));
}

TEST_CASE("a cost on the wire is rounded up and bounded") {
  CHECK(WholeMicroseconds(std::chrono::nanoseconds(0)) == 0);
  CHECK(WholeMicroseconds(std::chrono::nanoseconds(1)) == 1);
  CHECK(WholeMicroseconds(std::chrono::nanoseconds(2000)) == 2);
  CHECK(WholeMicroseconds(std::chrono::hours(2)) == UINT32_MAX);
}

}  // namespace kvkeep
