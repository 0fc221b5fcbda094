#include "tiers/base/growing_memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace kvkeep {
namespace {

constexpr uint64_t kStep = GrowingMemory::kStepBytes;

TEST_CASE("growing memory is zeros, all of it can be used, touched or not") {
  GrowingMemory memory(2 * kStep + 100);
  CHECK(memory.bytes() == 2 * kStep + 100);
  for (const uint64_t at : {uint64_t{0}, kStep, 2 * kStep + 99}) {
    CHECK(memory.data()[at] == std::byte{0});
    memory.data()[at] = std::byte{1};
  }
}

TEST_CASE("touching memory changes nothing of it") {
  GrowingMemory memory(3 * kStep);
  memory.data()[kStep + 5] = std::byte{7};
  GrowingMemory::Touch(memory.Due(1));
  CHECK(memory.data()[kStep + 5] == std::byte{7});
}

TEST_CASE("whole steps beyond what is used have been told, each step once and in order") {
  GrowingMemory memory(10 * kStep + 100);
  std::byte* told = memory.data() + kStep;  // the first at construction
  for (uint64_t used = 1; used <= 10 * kStep + 100; used += 4096) {
    for (auto due = memory.Due(used); !due.empty(); due = memory.Due(used)) {
      REQUIRE(due.data() == told);
      told = due.data() + due.size();
    }
    const uint64_t ahead = GrowingMemory::kStepsAhead * kStep;
    const uint64_t wanted = std::min(used + ahead, memory.bytes());
    REQUIRE(told >= memory.data() + wanted);
    REQUIRE(told < memory.data() + wanted + kStep);
  }
  CHECK(told == memory.data() + memory.bytes());
}

TEST_CASE("use that jumps ahead leaves out the steps that it jumped over") {
  GrowingMemory memory(100 * kStep);
  const auto due = memory.Due(50 * kStep + 1);
  CHECK(due.data() == memory.data() + 50 * kStep);
  CHECK(memory.Due(50 * kStep + 1).data() == memory.data() + 51 * kStep);
  CHECK(memory.Due(50 * kStep + 1).data() == memory.data() + 52 * kStep);
  CHECK(memory.Due(50 * kStep + 1).empty());
  CHECK(memory.Due(100 * kStep).empty());
}

TEST_CASE("memory of less than a step is never due") {
  GrowingMemory memory(kStep - 1);
  CHECK(memory.Due(kStep - 1).empty());
}

}  // namespace
}  // namespace kvkeep
