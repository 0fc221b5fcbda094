#include "tiers/nvme/geometry.h"

#include <catch2/catch.hpp>

namespace kvkeep {

TEST_CASE("data files and index allowance never exceed the capacity, and waste little of it") {
  for (const uint64_t capacity :
       {64 * kMiB, 65 * kMiB + 1, 100 * kMiB, kGiB, kTiB, 7 * kTiB + 12345}) {
    for (const uint64_t file : {uint64_t{kTiB}, 64 * kGiB}) {
      const DeviceGeometry geometry = MakeGeometry(capacity, file);
      CHECK(geometry.data_bytes() + geometry.index_allowance <= capacity);
      CHECK(geometry.data_bytes() + geometry.index_allowance > capacity - 2 * kMiB);
      CHECK(geometry.index_allowance >= 32 * kMiB);
      CHECK(geometry.index_budget() < geometry.index_allowance);
    }
  }
}

TEST_CASE("every data file but the last is full size, and the last is at least 1 MiB") {
  const DeviceGeometry geometry = MakeGeometry(64 * kMiB, 5 * kMiB);
  REQUIRE(geometry.files.size() == 7);
  for (size_t i = 0; i < 6; ++i) CHECK(geometry.files[i] == 5 * kMiB);
  CHECK(geometry.files[6] == 2 * kMiB);
  CHECK(MakeGeometry(64 * kMiB, kTiB).files == std::vector<uint64_t>{32 * kMiB});
}

TEST_CASE("a larger capacity only makes files longer or adds some") {
  DeviceGeometry before = MakeGeometry(64 * kMiB, 3 * kMiB);
  for (uint64_t capacity = 64 * kMiB; capacity < 2 * kGiB; capacity += 777'777) {
    DeviceGeometry after = MakeGeometry(capacity, 3 * kMiB);
    REQUIRE(after.files.size() >= before.files.size());
    for (size_t i = 0; i < before.files.size(); ++i) CHECK(after.files[i] >= before.files[i]);
    before = std::move(after);
  }
}

}  // namespace kvkeep
