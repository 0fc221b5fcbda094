#include "tools/bench/statistics.h"

#include <catch2/catch.hpp>

namespace kvkeep::bench {

TEST_CASE("the median is the middle one, or between the two in the middle, in any order") {
  CHECK(Summarize(std::vector<double>{3, 1, 2}).median == 2);
  CHECK(Summarize(std::vector<double>{4, 1, 3, 2}).median == 2.5);
  CHECK(Summarize({}).median == 0);
}

TEST_CASE("one wild round moves the spread and not the median") {
  const Summary summary = Summarize(std::vector<double>{10, 10, 10, 10, 100});
  CHECK(summary.median == 10);
  CHECK(summary.min == 10);
  CHECK(summary.max == 100);
  CHECK(summary.spread() == 9);
}

TEST_CASE("ratios are of the same round, and a round without baseline is left out") {
  const std::vector<double> a = {10, 40, 90, 7}, b = {10, 20, 0};
  CHECK(Ratios(a, b) == std::vector<double>{1, 2});
}

}  // namespace kvkeep::bench
