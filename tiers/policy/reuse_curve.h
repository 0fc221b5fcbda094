// ReuseCurve: how many of the wanted chunks a tier of any size would have held, had it kept the
// most recently used ones.
//
// Made by ReuseDistances. A chunk's distance is its own bytes plus those of all chunks used since
// its last use: a tier of at least that size still has it. Distances are kept by buckets, 16 an
// octave, so that a size is off by 6 % at most. A plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvkeep {

struct ReuseCurve {
  static constexpr size_t kBuckets = 1 + 16 * 52;  // from 4 KiB to all that 64 bits can say
  static size_t BucketOf(uint64_t distance_bytes);
  // Returns the bound below which distances are in that bucket or one before it.
  static double BoundOf(size_t bucket);

  uint64_t requests = 0;  // exact
  uint64_t wanted = 0;    // chunks of these; exact
  // Wanted chunks that were never in any tier before: misses of the largest tier, too. An estimate;
  // a caller that knows the exact number may set it.
  double cold = 0;
  std::array<double, kBuckets> at = {};  // the others, by distance: estimates
  // Chunks that came for the first time, however often they come again: estimates.
  double first_stored_chunks = 0, first_stored_bytes = 0;

  // Returns how many wanted chunks a tier of that size would no longer have had.
  double TooFar(double tier_bytes) const;
  // Returns 0 to 1; 0 when nothing was wanted. The number of wanted chunks is exact, so the
  // sample's surplus or deficit counts as hits of the smallest size: it comes from chunks that are
  // wanted all the time, which a sample includes or not (SHARDS-adj).
  double HitRatio(double tier_bytes) const;
  // Returns how many chunks are written to a tier of that size that takes each chunk when it comes,
  // and again after having lost it.
  double StoredChunks(double tier_bytes) const { return first_stored_chunks + TooFar(tier_bytes); }
  double mean_bytes() const {
    return first_stored_chunks > 0 ? first_stored_bytes / first_stored_chunks : 0;
  }
};

}  // namespace kvkeep
