// No memory for the pages and buffers of device I/O gives a miss, or a later answer, and no device
// is blamed.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/tiers/store/store_tester.h"

namespace {

bool no_pages = false;

}  // namespace

// Replaces the C library's, for the whole program.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  if (no_pages && alignment == kvkeep::kBlockBytes) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace kvkeep {
namespace {

class NoPages {
 public:
  NoPages() { no_pages = true; }
  ~NoPages() { no_pages = false; }
};

DeviceState StateOf(StoreTester& s) { return s.store().snapshot().devices[0].state; }

}  // namespace

TEST_CASE("without a page for its header a chunk of G3 is not read, and is later") {
  StoreTester s;
  PutIntoG3(s, 1, 100'000);
  for (uint64_t i = 1; i <= 4; ++i) {
    {
      const NoPages none;
      ChunkReader reader = s.Pin(1);
      CHECK(s.WaitFor(reader, 0, 1) != "ok");
    }
    CHECK(s.counters().allocation_failures == i);
    s.store().CheckInvariants();
  }
  CHECK(StateOf(s) == DeviceState::kOk);
  CHECK(s.counters().corrupt_chunks == 0);
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("without memory for its write a chunk waits, and is written later") {
  WorldOptions options = SmallWorld();
  SECTION("as it is") {}
  SECTION("encrypted") { options.encryption = WorldOptions::Encryption::kOn; }
  StoreTester s(options);
  for (uint64_t i = 0; i < 5; ++i) {
    REQUIRE(s.Put(i) == "stored");
    const NoPages none;
    s.RunAll();
  }
  CHECK(s.counters().allocation_failures == 5);
  CHECK(s.store().snapshot().g2.waiting_chunks == 5);
  CHECK(StateOf(s) == DeviceState::kOk);
  s.Pass(std::chrono::seconds(3));
  for (uint64_t i = 0; i < 5; ++i) CHECK(s.Where(i) == "23");
  s.KillAndStart();
  for (uint64_t i = 0; i < 5; ++i) CHECK(s.Get(i) == "hit");
}

TEST_CASE("without a page to confirm a record with, it is confirmed later") {
  StoreTester s;
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.Settle();
  REQUIRE(s.Durable(1) == "ok");
  {
    const NoPages none;
    s.PowerCutAndStart();
  }
  s.RunAll();
  CHECK(s.counters().allocation_failures == 1);
  CHECK(s.Where(1).empty());
  s.Pass(std::chrono::seconds(2));
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("without pages for a chunk's metadata it is an error that says so") {
  StoreTester s;
  PutIntoG3(s, 1, 4096, 500);
  absl::Status answer;
  {
    const NoPages none;
    s.store().ReadMetadata(s.Id(1), [&answer](absl::StatusOr<std::string> metadata) {
      answer = metadata.status();
    });
  }
  CHECK(absl::IsUnavailable(answer));
  CHECK(s.counters().allocation_failures == 1);
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("I/O that fails as the kernel is short of memory is no device's fault") {
  StoreTester s;
  s.world.device().set_options({.write_error = 1, .host_short = true});
  for (uint64_t i = 0; i < 6; ++i) REQUIRE(s.Put(i) == "stored");
  s.Pass(std::chrono::seconds(5));
  CHECK(s.counters().host_short_ios > 6);  // tried each second
  CHECK(s.counters().host_short_ios < 60);
  CHECK(StateOf(s) == DeviceState::kOk);
  s.world.device().set_options({});
  s.Pass(std::chrono::seconds(3));
  for (uint64_t i = 0; i < 6; ++i) CHECK(s.Where(i) == "23");
  s.KillAndStart();
  s.world.device().set_options({.read_error = 1, .host_short = true});
  for (uint64_t i = 0; i < 6; ++i) CHECK(s.Get(i) == "RESOURCE_EXHAUSTED");
  CHECK(StateOf(s) == DeviceState::kOk);
  s.world.device().set_options({});
  for (uint64_t i = 0; i < 6; ++i) CHECK(s.Get(i) == "hit");
}

}  // namespace kvkeep
