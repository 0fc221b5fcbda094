#include "tiers/store/packed_extents.h"

#include <catch2/catch.hpp>
#include <utility>

#include "tiers/base/image.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

Extent ExtentAt(uint64_t first, uint64_t count) { return {BlockNumber(first), BlockCount(count)}; }

TEST_CASE("extents come out of 8 bytes as they went in") {
  static_assert(sizeof(PackedExtents) == 8);
  const uint64_t largest =
      ImageShape{.payload_bytes = kMaxPayloadBytes, .tail_bytes = kMaxTailBytes}.blocks().value();
  for (const ExtentList& extents :
       {ExtentList{}, ExtentList{ExtentAt(0, 1)}, ExtentList{ExtentAt(7, largest)},
        ExtentList{ExtentAt((uint64_t{1} << 46) - 1, 1)},
        ExtentList{ExtentAt(9, 2), ExtentAt(3, 1)},
        ExtentList{ExtentAt(0, 1), ExtentAt(2, 1), ExtentAt(4, 1)}}) {
    const PackedExtents packed = extents;
    CHECK(packed.list() == extents);
    CHECK(packed.empty() == extents.empty());
    if (extents.empty()) continue;
    CHECK(packed.first_block() == extents.front().first);
    CHECK(packed.end_block() == extents.back().end());
  }
}

TEST_CASE("packed extents are a value: copies are deep, who is moved from is empty") {
  const ExtentList two = {ExtentAt(9, 2), ExtentAt(3, 1)}, one = {ExtentAt(5, 5)};
  PackedExtents a = two;
  PackedExtents b = a;
  a = one;
  CHECK(b.list() == two);
  a = std::move(b);
  CHECK(a.list() == two);
  CHECK(b.empty());  // NOLINT: what it promises
  const PackedExtents& same = a;
  a = same;
  CHECK(a.list() == two);
  PackedExtents c = std::move(a);
  CHECK(a.empty());  // NOLINT: likewise
  a = c;
  c.clear();
  CHECK(c.empty());
  CHECK(a.list() == two);
}

}  // namespace
}  // namespace kvkeep::store_internal
