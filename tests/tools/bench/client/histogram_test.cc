#include "tools/bench/client/histogram.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tools/bench/client/json_fields.h"

namespace kvkeep::bench {
namespace {

// Returns the exact quantile, from the sorted values; the histogram must come near it.
uint64_t Exact(std::vector<uint64_t> values, double quantile) {
  std::sort(values.begin(), values.end());
  const size_t rank =
      static_cast<size_t>(std::max(1.0, std::ceil(quantile * static_cast<double>(values.size()))));
  return values[rank - 1];
}

// Computes it as histogram.py does.
double Quantile(const LatencyHistogram& histogram, double quantile) {
  const Json json = histogram;
  const double wanted = std::ceil(quantile * static_cast<double>(histogram.count()));
  double seen = 0;
  for (const Json& pair : json.at("buckets")) {
    const uint64_t bucket = pair.at(0);
    seen += pair.at(1).get<double>();
    if (seen < wanted) continue;
    double middle = static_cast<double>(bucket);
    if (bucket >= 128) {
      const double step = std::exp2((bucket - 128) / 64 + 1);
      middle = (static_cast<double>(64 + bucket % 64) + 0.5) * step;
    }
    return std::clamp(middle, json.at("min").get<double>(), json.at("max").get<double>());
  }
  return 0;
}

}  // namespace

TEST_CASE("an empty histogram answers zero for everything") {
  const LatencyHistogram empty;
  CHECK(empty.count() == 0);
  CHECK(empty.min_ns() == 0);
  CHECK(empty.max_ns() == 0);
}

TEST_CASE("quantiles are within 1.6 percent of the exact ones, over nine orders of magnitude") {
  SeededRandom random(7);
  std::vector<uint64_t> values;
  LatencyHistogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t value = random.NextU64() >> (34 + i % 30);  // 0 to 2^30
    values.push_back(value);
    histogram.Record(value);
  }
  for (double quantile : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double exact = static_cast<double>(Exact(values, quantile));
    const double found = Quantile(histogram, quantile);
    INFO("quantile " << quantile);
    CHECK(std::abs(found - exact) <= exact * 0.016);
  }
}

TEST_CASE("values below 128 ns are kept exactly, and the largest there is has a bucket") {
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{127}, UINT64_MAX}) {
    LatencyHistogram histogram;
    histogram.Record(value);
    CHECK(Quantile(histogram, 0.5) == static_cast<double>(value));
    CHECK(histogram.max_ns() == value);
  }
}

TEST_CASE("the value of a quantile is one that so many do not exceed") {
  LatencyHistogram histogram;
  for (uint64_t value = 1; value <= 100; ++value) histogram.Record(value);
  CHECK(Quantile(histogram, 0.5) == 50);
  CHECK(Quantile(histogram, 0.99) == 99);
  CHECK(Quantile(histogram, 0.999) == 100);
}

TEST_CASE("merged histograms are as one that recorded everything") {
  LatencyHistogram a, b, both;
  for (uint64_t i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? a : b).Record(i * i * 17);
    both.Record(i * i * 17);
  }
  a.Merge(b);
  CHECK(Json(a) == Json(both));
}

}  // namespace kvkeep::bench
