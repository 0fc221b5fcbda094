#include "tiers/io/registered_buffers.h"

#include <catch2/catch.hpp>

#include "tests/fakes/aligned_bytes.h"
#include "tiers/base/units.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {
namespace {

// Addresses only: nothing in this table reads the memory.
std::span<std::byte> FakeMemory(uint64_t address, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), bytes};
}
std::byte* At(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

TEST_CASE("an I/O uses a buffer only when it lies wholly in that one") {
  RegisteredBuffers buffers;
  CHECK_FALSE(buffers.Find(At(kGiB), 1));

  buffers.Add(FakeMemory(2 * kGiB, kMiB));     // slot 0
  buffers.Add(FakeMemory(kGiB, kMiB));         // slot 1, before it
  buffers.Add(FakeMemory(kGiB + kMiB, kMiB));  // slot 2, adjacent to slot 1

  CHECK(buffers.Find(At(2 * kGiB), kMiB) == 0u);
  CHECK(buffers.Find(At(kGiB), kMiB) == 1u);
  CHECK(buffers.Find(At(kGiB + kMiB - 1), 1) == 1u);
  CHECK(buffers.Find(At(kGiB + kMiB), 1) == 2u);
  CHECK(buffers.Find(At(kGiB + 2 * kMiB - kBlockBytes), kBlockBytes) == 2u);

  CHECK_FALSE(buffers.Find(At(kGiB - kBlockBytes), kBlockBytes));             // before all
  CHECK_FALSE(buffers.Find(At(kGiB - kBlockBytes), 2 * kBlockBytes));         // starts outside
  CHECK_FALSE(buffers.Find(At(kGiB + kMiB - kBlockBytes), 2 * kBlockBytes));  // across two
  CHECK_FALSE(buffers.Find(At(kGiB + 2 * kMiB), kBlockBytes));                // in the gap
  CHECK_FALSE(buffers.Find(At(2 * kGiB), kMiB + 1));                          // ends outside
  CHECK_FALSE(buffers.Find(At(3 * kGiB), 1));                                 // after all
}

TEST_CASE("memory that cannot be registered is refused with the reason") {
  RegisteredBuffers buffers;
  buffers.Add(FakeMemory(kGiB, kMiB));
  const auto code = [&](uint64_t address, uint64_t bytes) {
    return buffers.CheckNext(FakeMemory(address, bytes)).code();
  };
  CHECK(code(4 * kGiB, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(code(4 * kGiB, kGiB + kBlockBytes) == absl::StatusCode::kInvalidArgument);
  CHECK(code(4 * kGiB + 512, kMiB) == absl::StatusCode::kInvalidArgument);
  CHECK(code(4 * kGiB, kMiB + 512) == absl::StatusCode::kInvalidArgument);
  CHECK(code(kGiB + kMiB - kBlockBytes, kMiB) == absl::StatusCode::kInvalidArgument);
  CHECK(code(kGiB - kBlockBytes, 2 * kBlockBytes) == absl::StatusCode::kInvalidArgument);
  CHECK(code(4 * kGiB, kGiB) == absl::StatusCode::kOk);
}

TEST_CASE("the table of registered buffers has an end") {
  RegisteredBuffers buffers;
  for (uint64_t i = 0; i < IoEngine::kMaxRegisteredBuffers; ++i) {
    REQUIRE(buffers.CheckNext(FakeMemory((i + 1) * kGiB, kGiB)).ok());
    CHECK(buffers.next_slot() == i);
    buffers.Add(FakeMemory((i + 1) * kGiB, kGiB));
  }
  CHECK(buffers.CheckNext(FakeMemory(uint64_t{1} << 60, kGiB)).code() ==
        absl::StatusCode::kResourceExhausted);
}

}  // namespace kvkeep
