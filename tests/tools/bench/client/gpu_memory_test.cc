// How chunks lie on a GPU, and which cases there may be. Numbers only: the paths themselves run on
// the fake driver (tests/gpu/bench_test.py).
#include "tools/bench/client/gpu_memory.h"

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep::bench {

TEST_CASE("runs of a chunk lie in stretches with as large gaps, and end with the payload") {
  const auto stretches = GpuMemory::Stretches(1, 100, {.run_bytes = 16, .adjacent = 2});
  REQUIRE(stretches.size() == 4);
  for (size_t i = 0; i < stretches.size(); ++i) {
    CHECK(stretches[i].payload_offset == 32 * i);
    CHECK(stretches[i].region_offset == 200 + 64 * i);  // behind the chunk before, and its gaps
    CHECK(stretches[i].bytes == (i == 3 ? 4 : 32));
  }
  CHECK(GpuMemory::Stretches(0, 64, {.run_bytes = 64}).size() == 1);
}

TEST_CASE("a case on a GPU is a put or a get of one call at a time, of runs that a chunk holds") {
  CaseSpec spec = {.verb = Verb::kPut, .size = kMiB, .run_bytes = 64 * kKiB, .adjacent = 16};
  CHECK(spec.Validate().ok());
  const CaseSpec back = FieldsFromJson<CaseSpec>(FieldsToJson(spec));
  CHECK(back.run_bytes == spec.run_bytes);
  CHECK(back.adjacent == spec.adjacent);
  spec.adjacent = 17;
  CHECK(absl::IsInvalidArgument(spec.Validate()));
  spec.adjacent = 1;
  spec.depth = 2;
  CHECK(absl::IsInvalidArgument(spec.Validate()));
  spec.depth = 1;
  spec.verb = Verb::kLookup;
  spec.keys = 1;
  CHECK(absl::IsInvalidArgument(spec.Validate()));
}

TEST_CASE("two paths are a GPU's") {
  CHECK(GpuWayOf("cuda-ipc") == GpuWay::kDaemonCopies);
  CHECK(GpuWayOf("pinned") == GpuWay::kWorkerCopies);
  CHECK_FALSE(GpuWayOf("local"));
}

}  // namespace kvkeep::bench
