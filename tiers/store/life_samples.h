// LifeSamples: how long chunks stay in a tier, how long nobody had asked for them when they were
// evicted, and how long after that somebody asks again. What an operator sizes a tier by: chunks
// that are wanted soon after they went would have been hits of a larger one.
//
// It looks at a sample: the chunks whose fingerprint says so, one in `one_in`, each for all of its
// life. The same chunks are sampled in every tier. Memory is bounded by kMost chunks. Chunks that
// are gone are forgotten first, the oldest before the others. When too many are not gone, every
// second one leaves the sample for good. A chunk that left a tier since it was deleted, or lost,
// says nothing.
//
// A plain part of the store's state: the store's lock protects it. A chunk that is not sampled
// costs a comparison, one that is some 100 ns.
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

  // The chunk is in that tier from now on, whether or not it was there before.
  void OnStored(Fingerprint chunk, Where where, MonotonicTime now);
  // It made room for others.
  void OnEvicted(Fingerprint chunk, Where where, MonotonicTime now);
  // It left for any other reason.
  void OnRemoved(Fingerprint chunk, Where where);
  // Somebody asks for these, present or not. Returns how many of them are sampled.
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
  size_t there_ = 0;       // of chunks_: in a tier
  std::deque<Gone> gone_;  // the others, the oldest first; some are back, or gone again later
  std::array<Histogram, 2> lifetime_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
  std::array<Histogram, 2> idle_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
  std::array<Histogram, 2> wanted_again_{Histogram(kAgeBounds), Histogram(kAgeBounds)};
};

}  // namespace kvkeep::store_internal
