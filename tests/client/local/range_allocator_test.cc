#include "client/local/range_allocator.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

namespace kvkeep::client {

TEST_CASE("ranges never overlap, stay inside, and all space comes back") {
  RangeAllocator ranges(1 << 20, 4096);
  std::mt19937_64 random(GENERATE(1, 2, 3, 4, 5));
  std::map<uint64_t, uint64_t> taken;  // offset -> end
  for (int step = 0; step < 5'000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const uint64_t bytes = 1 + random() % 50'000;
      const auto offset = ranges.Allocate(bytes);
      if (!offset.has_value()) continue;
      REQUIRE(*offset % 4096 == 0);
      REQUIRE(*offset + bytes <= 1 << 20);
      const auto after = taken.lower_bound(*offset);
      REQUIRE((after == taken.end() || *offset + bytes <= after->first));
      REQUIRE((after == taken.begin() || std::prev(after)->second <= *offset));
      taken[*offset] = *offset + bytes;
    } else {
      const auto gone = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      ranges.Free(gone->first);
      taken.erase(gone);
    }
  }
  for (const auto& [offset, end] : taken) ranges.Free(offset);
  CHECK(ranges.empty());
  CHECK(ranges.used_bytes() == 0);
  CHECK(ranges.Allocate(1 << 20) == 0u);  // one gap again, not many that touch
  CHECK_FALSE(ranges.Allocate(1).has_value());
}

TEST_CASE("what does not fit, or is nothing, gets no range") {
  RangeAllocator ranges(10'000, 4096);
  CHECK(ranges.capacity() == 8192);
  CHECK_FALSE(ranges.Allocate(0).has_value());
  CHECK_FALSE(ranges.Allocate(8193).has_value());
  CHECK(ranges.Allocate(8192) == 0u);
}

}  // namespace kvkeep::client
