#include "tiers/policy/reuse_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr int kSmallest = 12;  // log2: 4 KiB
constexpr int kParts = 4;      // log2: of an octave

}  // namespace

size_t ReuseCurve::BucketOf(uint64_t distance_bytes) {
  const int octave = std::bit_width(distance_bytes) - 1;  // -1 for 0
  if (octave < kSmallest) return 0;
  const uint64_t part = (distance_bytes >> (octave - kParts)) & ((1 << kParts) - 1);
  return 1 + (static_cast<size_t>(octave - kSmallest) << kParts) + part;
}

double ReuseCurve::BoundOf(size_t bucket) {
  KVKEEP_CHECK(bucket < kBuckets);
  const auto octave = static_cast<int>(bucket >> kParts) + kSmallest;
  const double part = static_cast<double>(bucket & ((1 << kParts) - 1)) / (1 << kParts);
  return std::ldexp(1 + part, octave);
}

double ReuseCurve::TooFar(double tier_bytes) const {
  double far = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    const double end = BoundOf(i), begin = i == 0 ? 0 : BoundOf(i - 1);
    far += at[i] * std::clamp((end - tier_bytes) / (end - begin), 0.0, 1.0);
  }
  return far;
}

double ReuseCurve::HitRatio(double tier_bytes) const {
  if (wanted == 0) return 0;
  return std::clamp(1 - (cold + TooFar(tier_bytes)) / static_cast<double>(wanted), 0.0, 1.0);
}

}  // namespace kvkeep
