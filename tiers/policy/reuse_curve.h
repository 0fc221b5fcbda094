// ReuseCurve: how many of the chunks that were asked for a tier of any size would have held, had it
// kept the most recently used ones.
//
// Made by ReuseDistances. A chunk's distance is the bytes of all chunks that were used since it
// was, and its own: a tier that is at least so large still has it. Distances are kept by buckets,
// 16 an octave, so that a size is off by 6 % at most. A plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvkeep {

struct ReuseCurve {
  static constexpr size_t kBuckets = 1 + 16 * 52;  // from 4 KiB to all that 64 bits can say
  static size_t BucketOf(uint64_t distance_bytes);
  // Distances below this are in that bucket or one before it.
  static double BoundOf(size_t bucket);

  uint64_t requests = 0;  // exact
  uint64_t wanted = 0;    // chunks of these; exact
  // Of these, never in any tier before: misses of the largest one, too. An estimate, which who
  // knows it exactly may put right.
  double cold = 0;
  std::array<double, kBuckets> at = {};  // the others, by distance: estimates
  // Chunks that came for the first time, however often they come again: estimates.
  double first_stored_chunks = 0, first_stored_bytes = 0;

  // Chunks wanted that a tier of that size would have had no more.
  double TooFar(double tier_bytes) const;
  // 0 to 1; 0 when nothing was wanted. The number of chunks wanted is known, so what the sample has
  // too many or too few of is taken for hits of the smallest size: those are chunks that are wanted
  // all the time, and a sample has one of them or has not (SHARDS-adj).
  double HitRatio(double tier_bytes) const;
  // Written to a tier of that size that takes each chunk when it comes, and again when it had lost
  // it.
  double StoredChunks(double tier_bytes) const { return first_stored_chunks + TooFar(tier_bytes); }
  double mean_bytes() const {
    return first_stored_chunks > 0 ? first_stored_bytes / first_stored_chunks : 0;
  }
};

}  // namespace kvkeep
