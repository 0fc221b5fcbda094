#include "tiers/base/growing_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr uint64_t kStep = GrowingMemory::kStepBytes;

// Returns whether every page of it exists.
bool IsThere(const GrowingMemory& memory, uint64_t begin, uint64_t end) {
  std::vector<unsigned char> pages(DivideRoundUp(end - begin, PageBytes()));
  REQUIRE(mincore(memory.data() + begin, end - begin, pages.data()) == 0);
  return std::all_of(pages.begin(), pages.end(),
                     [](unsigned char page) { return (page & 1) != 0; });
}

TEST_CASE("growing memory is zeros, all of it can be used, touched or not") {
  GrowingMemory memory(2 * kStep + 100);
  CHECK(memory.bytes() == 2 * kStep + 100);
  for (const uint64_t at : {uint64_t{0}, kStep, 2 * kStep + 99}) {
    CHECK(memory.data()[at] == std::byte{0});
    memory.data()[at] = std::byte{1};
  }
  memory.Use(2 * kStep);  // nothing touches it ahead
  CHECK(memory.data()[kStep] == std::byte{1});
}

TEST_CASE("touching memory changes nothing of it, and brings its pages there") {
  const GrowingMemory memory(3 * kStep);
  memory.data()[kStep + 5] = std::byte{7};
  CHECK_FALSE(IsThere(memory, 0, kStep));
  MemoryToucher::TouchNow({memory.data(), 2 * kStep});
  CHECK(memory.data()[kStep + 5] == std::byte{7});
  CHECK(IsThere(memory, 0, 2 * kStep));
  CHECK_FALSE(IsThere(memory, 2 * kStep, 3 * kStep));
}

TEST_CASE("whole steps beyond what is used are touched, and no more of them") {
  MemoryToucher toucher;
  GrowingMemory memory(6 * kStep + 100, &toucher);
  for (const uint64_t used : {uint64_t{0}, uint64_t{1}, kStep, kStep + 1, 3 * kStep + 7,
                              5 * kStep, 6 * kStep + 100}) {
    CAPTURE(used);
    memory.Use(used);
    const uint64_t ahead = GrowingMemory::kStepsAhead * kStep;
    CHECK(memory.asked() >= std::min(used + ahead, memory.bytes()));
    CHECK(memory.asked() < used + ahead + kStep);
    toucher.Await();
    CHECK(IsThere(memory, 0, memory.asked()));
    if (memory.asked() < memory.bytes()) {
      CHECK_FALSE(IsThere(memory, memory.asked(), memory.asked() + kStep));
    }
  }
}

TEST_CASE("memory of less than a step is never touched ahead") {
  MemoryToucher toucher;
  GrowingMemory memory(kStep - 1, &toucher);
  memory.Use(kStep - 1);
  toucher.Await();
  CHECK_FALSE(IsThere(memory, 0, PageBytes()));
}

TEST_CASE("memory that goes while it is being touched waits for that") {
  MemoryToucher toucher;
  for (int i = 0; i < 10; ++i) {
    auto memory = std::make_unique<GrowingMemory>(16 * kStep, &toucher);
    memory->Use(16 * kStep);
    std::byte* const was = memory->data();
    memory.reset();
    // Memory of another user, which wants none of it touched.
    void* const anew = mmap(was, 16 * kStep, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(anew == was);
    toucher.Await();
    std::vector<unsigned char> pages(16 * kStep / PageBytes());
    REQUIRE(mincore(anew, 16 * kStep, pages.data()) == 0);
    CHECK(std::none_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
    munmap(anew, 16 * kStep);
  }
}

}  // namespace
}  // namespace kvkeep
