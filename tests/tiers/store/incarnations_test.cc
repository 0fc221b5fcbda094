#include "tiers/store/incarnations.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

TEST_CASE("an incarnation has one number, and the number that incarnation") {
  Incarnations known;
  const auto first = known.Add(Incarnation(uint64_t{1} << 63));
  const auto second = known.Add(Incarnation(0));
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK(*first != *second);
  CHECK(known.Add(Incarnation(0)) == second);
  CHECK(known.At(*first) == Incarnation(uint64_t{1} << 63));
  CHECK(known.At(*second) == Incarnation(0));
}

TEST_CASE("incarnations beyond the most get no number, and those that are known keep theirs") {
  Incarnations known;
  for (uint64_t i = 0; i < Incarnations::kMost; ++i) {
    if (!known.Add(Incarnation(i)).has_value()) FAIL(i);
  }
  CHECK_FALSE(known.Add(Incarnation(Incarnations::kMost)).has_value());
  CHECK(known.At(*known.Add(Incarnation(Incarnations::kMost - 1))) ==
        Incarnation(Incarnations::kMost - 1));
}

}  // namespace
}  // namespace kvkeep::store_internal
