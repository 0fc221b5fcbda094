// ReuseMeter: measures how long ago, in bytes, the chunks that lookups ask for were used before. It
// covers the whole daemon. An operator sees from it what larger or smaller tiers would hit (`kvkeep
// plan --live`).
//
// It keeps the ReuseDistances (tiers/policy) of a sample: one chunk in eight (all, if both tiers
// are tiny), at most 16,384, some 1.5 MB.
//   - Lookups of all tenants count, with each chunk and the leading run that was found. Touches,
//     prefetches and repeats of a lookup do not count.
//   - Chunks that were stored count by their bytes in a tier. Chunks that a restart found count as
//     stored, by age.
//   - Deleted chunks are forgotten. A clear of everything begins the measurement anew. A clear of a
//     namespace changes nothing: its chunks are not asked for any more, and get old.
//   - Uses further back than eight times both tiers, as they were at the start, are forgotten.
//
// Thread-safe, with a lock of its own, which nobody takes for chunks outside of the sample: each of
// these costs a hash. Except at the start, it is never called with the store's lock held: `Note`
// collects what to tell it after the hold.
#pragma once

#include <absl/container/inlined_vector.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/policy/reuse_distances.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class ReuseMeter {
 public:
  static constexpr uint32_t kMostKeys = 16'384;
  using Link = EvictionPolicy::ChainLink;

  // `tier_bytes`: the size of both tiers together.
  ReuseMeter(uint64_t tier_bytes, MonotonicTime now);

  bool Sampled(Fingerprint chunk) const {
    return ReuseDistances::HashOf(chunk) <= highest_.load(std::memory_order_relaxed);
  }
  // Notes a lookup of these chunks, of which the first `leading` were there.
  void OnRequest(std::span<const Link> chain, uint64_t leading);
  void OnStored(Fingerprint chunk, uint64_t bytes);
  // Notes a chunk that was stored before. Call it from the oldest chunk to the youngest.
  void OnFound(Fingerprint chunk, uint64_t bytes);
  void OnRemoved(Fingerprint chunk);
  void Clear(MonotonicTime now);

  ReuseSnapshot snapshot(MonotonicTime now) const;

  // Notes what one call did under the store's lock. Its destructor runs without the lock, and tells
  // the meter.
  class Note {
   public:
    explicit Note(ReuseMeter* meter) : meter_(*meter) {}
    ~Note();
    Note(const Note&) = delete;
    Note& operator=(const Note&) = delete;
    // REQUIRES: the links live longer than this.
    void Asked(std::span<const Link> chain, uint64_t leading);
    void Stored(Fingerprint chunk, uint64_t bytes);
    void Removed(Fingerprint chunk);

   private:
    ReuseMeter& meter_;
    std::span<const Link> asked_;
    uint64_t leading_ = 0;
    Fingerprint stored_;
    uint64_t stored_bytes_ = 0;                    // 0: nothing was
    absl::InlinedVector<Fingerprint, 8> removed_;  // sampled ones
  };

 private:
  // Since `begun_`. Atomic, without the lock: most lookups have no sampled chunk.
  std::atomic<uint64_t> requests_{0}, wanted_{0}, leading_{0};
  mutable Mutex mu_;
  ReuseDistances distances_ ABSL_GUARDED_BY(mu_);
  MonotonicTime begun_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> highest_;  // of distances_
};

}  // namespace kvkeep::store_internal
