#include "server/gpu/copy_plan.h"

#include <catch2/catch.hpp>
#include <map>

#include "server/gpu/gpu_device.h"
#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using Piece = CopyPlan::Piece;
using Catch::Matchers::Contains;

constexpr GpuRegistrationId kOne(1), kTwo(2);
constexpr CopyPlanLimits kLimits = {.arena_bytes = 1 << 20, .segment_bytes = 1 << 16};

absl::StatusOr<CopyPlan> Make(const std::vector<GpuRun>& runs,
                              const CopyPlanLimits& limits = kLimits) {
  static const std::map<GpuRegistrationId, GpuRange> ranges = {
      {kOne, {.address = 0x7000'0000'0000, .bytes = 1 << 20}},
      {kTwo, {.address = 0x7000'0010'0000, .bytes = 1 << 20}},  // just behind the first one
      {GpuRegistrationId(3), {.address = UINT64_MAX - 4096, .bytes = 4096}}};
  return CopyPlan::Make(
      runs,
      [](GpuRegistrationId id) {
        const auto found = ranges.find(id);
        return found == ranges.end() ? nullptr : &found->second;
      },
      limits);
}

std::vector<Piece> Pieces(const std::vector<GpuRun>& runs) {
  const absl::StatusOr<CopyPlan> plan = Make(runs);
  REQUIRE(plan.status() == absl::OkStatus());
  return {plan->pieces().begin(), plan->pieces().end()};
}

TEST_CASE("one run is one piece at its place in the device") {
  CHECK(Pieces({{kOne, 4096, 8192, 100}}) == std::vector<Piece>{{0x7000'0000'1000, 8192, 100}});
}

TEST_CASE("runs that lie one behind the other in both memories become one piece") {
  CHECK(Pieces({{kOne, 0, 0, 100}, {kOne, 100, 100, 50}, {kOne, 150, 150, 1}}) ==
        std::vector<Piece>{{0x7000'0000'0000, 0, 151}});
}

TEST_CASE("runs that lie one behind the other in one memory only stay apart") {
  CHECK(Pieces({{kOne, 0, 0, 100}, {kOne, 100, 200, 50}}).size() == 2);
  CHECK(Pieces({{kOne, 0, 0, 100}, {kOne, 200, 100, 50}}).size() == 2);
  CHECK(Pieces({{kOne, 100, 100, 100}, {kOne, 0, 0, 100}}).size() == 2);  // in the order given
}

TEST_CASE("pieces end at the borders of the arena's segments, and none goes over one") {
  CHECK(
      Pieces({{kOne, 0, (1 << 16) - 10, 30}}) ==
      std::vector<Piece>{{0x7000'0000'0000, (1 << 16) - 10, 10}, {0x7000'0000'000a, 1 << 16, 20}});
  CHECK(Pieces({{kOne, 0, (1 << 16) - 10, 10}, {kOne, 10, 1 << 16, 10}}).size() == 2);
  CHECK(Pieces({{kOne, 0, 0, 3 << 16}}).size() == 3);
}

TEST_CASE("neighbouring registrations are one memory to the copy") {
  CHECK(Pieces({{kOne, (1 << 20) - 8, 0, 8}, {kTwo, 0, 8, 8}}).size() == 1);
}

TEST_CASE("what a client may have written wrong is named") {
  const auto message = [](const std::vector<GpuRun>& runs) {
    const absl::Status status = Make(runs).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK_THAT(message({}), Contains("runs are 0"));
  CHECK_THAT(message({{kOne, 0, 0, 10}, {kOne, 0, 0, 0}}), Contains("runs[1].bytes is 0"));
  CHECK_THAT(message({{kOne, 1 << 20, 0, 1}}), Contains("runs[0]"));
  CHECK_THAT(message({{kOne, (1 << 20) - 1, 0, 2}}), Contains("registration 1 has 1048576"));
  CHECK_THAT(message({{kOne, UINT64_MAX, 0, 2}}), Contains("runs[0]"));
  CHECK_THAT(message({{kOne, 2, 0, UINT64_MAX}}), Contains("runs[0]"));
  CHECK_THAT(message({{GpuRegistrationId(3), 4000, 0, UINT64_MAX - 3999}}), Contains("runs[0]"));
  CHECK(Make({{GpuRegistrationId(9), 0, 0, 1}}).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a plan has a limit of runs") {
  CopyPlanLimits limits = kLimits;
  limits.max_runs = 2;
  CHECK(Make({{kOne, 0, 0, 1}, {kOne, 9, 9, 1}}, limits).ok());
  CHECK_FALSE(Make({{kOne, 0, 0, 1}, {kOne, 9, 9, 1}, {kOne, 5, 5, 1}}, limits).ok());
}

TEST_CASE("pieces come in batches of at most so many, in order and without a gap") {
  CopyPlanLimits limits = kLimits;
  limits.max_batch = 3;
  std::vector<GpuRun> runs;
  for (uint64_t i = 0; i < 7; ++i) runs.push_back({kOne, 100 * i, 200 * i, 10});
  const absl::StatusOr<CopyPlan> plan = Make(runs, limits);
  REQUIRE(plan.ok());
  REQUIRE(plan->batches() == 3);
  std::vector<Piece> all;
  for (size_t i = 0; i < 3; ++i) {
    CHECK(plan->batch(i).size() == (i < 2 ? 3u : 1u));
    all.insert(all.end(), plan->batch(i).begin(), plan->batch(i).end());
  }
  CHECK(all == std::vector<Piece>(plan->pieces().begin(), plan->pieces().end()));
}

TEST_CASE("whatever the runs are, their bytes are copied, each to its place, by fewest pieces") {
  const uint64_t seed = GENERATE(range(1, 40));
  CAPTURE(seed);
  SeededRandom random(seed);
  // Byte by byte: the device's byte of each byte of the arena.
  std::map<uint64_t, uint64_t> wanted, planned;
  std::vector<GpuRun> runs;
  uint64_t arena = random.Below(100'000), offset = random.Below(1000);
  for (int i = 0; i < 40; ++i) {
    const uint64_t bytes = 1 + random.Below(300);
    runs.push_back({kOne, offset, arena, bytes});
    for (uint64_t b = 0; b < bytes; ++b) wanted[arena + b] = 0x7000'0000'0000 + offset + b;
    arena += bytes + (random.Below(3) == 0 ? random.Below(500) : 0);
    offset = random.Below(3) == 0 ? random.Below(500'000) : offset + bytes;
  }
  const std::vector<Piece> pieces = Pieces(runs);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    for (uint64_t b = 0; b < piece.bytes; ++b) planned[piece.arena_offset + b] = piece.address + b;
    CHECK(piece.arena_offset / (1 << 16) == (piece.arena_offset + piece.bytes - 1) / (1 << 16));
    if (i == 0 || piece.arena_offset % (1 << 16) == 0) continue;
    const Piece& last = pieces[i - 1];
    CHECK_FALSE((last.address + last.bytes == piece.address &&
                 last.arena_offset + last.bytes == piece.arena_offset));
  }
  CHECK(planned == wanted);
}

TEST_CASE("the arena's memory is found by offset, and its segments are checked") {
  std::vector<std::byte> memory(300);
  const std::span<std::byte> all(memory);
  GpuArena arena = {.segments = {all.subspan(200, 100), all.subspan(0, 60)}, .segment_bytes = 100};
  CHECK(arena.Validate().ok());
  CHECK(arena.bytes() == 160);
  CHECK(arena.At(7) == memory.data() + 207);
  CHECK(arena.At(100) == memory.data());
  std::swap(arena.segments[0], arena.segments[1]);
  CHECK_FALSE(arena.Validate().ok());  // a short one that is not the last
  CHECK_FALSE(GpuArena{}.Validate().ok());
}

TEST_CASE("a registration is a range of its allocation") {
  GpuMemory memory;
  memory.allocation_bytes = 100;
  const auto valid = [&](uint64_t offset, uint64_t bytes) {
    memory.offset = offset;
    memory.bytes = bytes;
    return memory.Validate().ok();
  };
  CHECK(valid(0, 100));
  CHECK(valid(99, 1));
  CHECK_FALSE(valid(0, 0));
  CHECK_FALSE(valid(0, 101));
  CHECK_FALSE(valid(100, 1));
  CHECK_FALSE(valid(UINT64_MAX, 2));
  CHECK_FALSE(valid(2, UINT64_MAX));
  memory.kind = GpuMemory::Kind::kDescriptor;
  CHECK_FALSE(valid(0, 100));  // none came
}

}  // namespace
}  // namespace kvkeep
