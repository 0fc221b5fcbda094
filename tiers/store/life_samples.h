// LifeSamples: measures how long chunks stay in a tier, how long nobody had asked for them when
// they were evicted, and how long after that somebody asks again. An operator sizes a tier by this:
// chunks that are wanted soon after they were evicted would have been hits of a larger tier.
//
// It looks at a sample, one chunk in `one_in`, chosen by fingerprint, each for all of its life. The
// same chunks are sampled in every tier. Memory is bounded by kMost chunks. Chunks that are gone
// are forgotten first, the oldest before the others. If too many are not gone, every second one
// leaves the sample for good. A chunk that was deleted or lost does not count.
//
// It is a plain part of the store's state. The store's lock protects it. A chunk that is not
// sampled costs a comparison, and one that is costs some 100 ns.
#pragma once

#include <absl/container/btree_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "tiers/base/clock.h"
#include "tiers/base/histogram.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class LifeSamples {
 public:
  static constexpr size_t kMost = 2048;
  enum Where : size_t { kG2 = 0, kG3 = 1 };

  // `one_in`: a power of two, 1 to 2^31.
  explicit LifeSamples(uint32_t one_in);

  bool Sampled(Fingerprint chunk) const { return ((chunk.value() >> 20) & mask_) == 0; }

  // Notes that the chunk is in the tier from now on, whether or not it was there before.
  void OnStored(Fingerprint chunk, Where where, MonotonicTime now);
  // Notes that the chunk was evicted from the tier.
  void OnEvicted(Fingerprint chunk, Where where, MonotonicTime now);
  // Notes that the chunk left the tier for another reason.
  void OnRemoved(Fingerprint chunk, Where where);
  // Notes that somebody asks for these, present or not. Returns how many of them are sampled.
  size_t OnWanted(std::span<const EvictionPolicy::ChainLink> chunks, MonotonicTime now);

  LifeSnapshot snapshot() const;
  size_t size() const { return chunks_.size(); }

 private:
  static constexpr MonotonicTime kNever{-1};
  struct Sample {
    std::array<MonotonicTime, 2> stored = {kNever, kNever};   // by tier; kNever: not there
    std::array<MonotonicTime, 2> evicted = {kNever, kNever};  // likewise, and not asked for since
    MonotonicTime wanted = kNever;                            // last

    bool there() const { return stored[kG2] != kNever || stored[kG3] != kNever; }
    bool known() const { return there() || gone_at() != kNever; }
    MonotonicTime gone_at() const { return std::max(evicted[kG2], evicted[kG3]); }
  };
  struct Gone {
    uint64_t fingerprint;
    MonotonicTime at;
  };
  using Samples = absl::btree_map<uint64_t, Sample>;  // by fingerprint

  void WantedOne(Fingerprint chunk, MonotonicTime now);
  void MakeRoom();
  void ForgetOldest();
  void HalveTheSample();

  uint64_t mask_;
  Samples chunks_;
  size_t there_ = 0;       // how many of chunks_ are in a tier
  std::deque<Gone> gone_;  // the others, the oldest first; some are back, or gone again later
  std::array<Histogram, 2> lifetime_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
  std::array<Histogram, 2> idle_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
  std::array<Histogram, 2> wanted_again_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
};

}  // namespace kvkeep::store_internal
