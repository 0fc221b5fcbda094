// ReuseMeter: how far back the chunks lie that lookups ask for, of the whole daemon; so that an
// operator sees what larger or smaller tiers would hit (`kvkeep plan --live`).
//
// ReuseDistances (tiers/policy) of a sample: one chunk in eight (all, where both tiers are tiny),
// at most 16,384, some 1.5 MB. What counts:
//   - a lookup, each chunk of it, and its leading run as found; not a touch or a prefetch,
//     and not a lookup's repeat. Whosever they are: sizes are the node's.
//   - what was stored, by its bytes in a tier. What a restart found is known as stored, by age.
//   - what is deleted is forgotten. A clear of everything begins the measurement anew; one of a
//     namespace leaves it as it is: its chunks are asked for no more, and get old.
// What lies further back than eight times both tiers, as they were at the start, is forgotten.
//
// Thread-safe, with a lock of its own that nobody takes for chunks outside of the sample: these
// cost a hash each. Never called with the store's lock held, but for the start: `Note` collects
// what is to be told after it.
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

  // `tier_bytes`: of both tiers.
  ReuseMeter(uint64_t tier_bytes, MonotonicTime now);

  bool Sampled(Fingerprint chunk) const {
    return ReuseDistances::HashOf(chunk) <= highest_.load(std::memory_order_relaxed);
  }
  // A lookup of these, of which the first `leading` were there.
  void OnRequest(std::span<const Link> chain, uint64_t leading);
  void OnStored(Fingerprint chunk, uint64_t bytes);
  // It was stored before; told from the oldest to the youngest.
  void OnFound(Fingerprint chunk, uint64_t bytes);
  void OnRemoved(Fingerprint chunk);
  void Clear(MonotonicTime now);

  ReuseSnapshot snapshot(MonotonicTime now) const;

  // What one call did under the store's lock; told when it dies, after the lock was let go of.
  class Note {
   public:
    explicit Note(ReuseMeter* meter) : meter_(*meter) {}
    ~Note();
    Note(const Note&) = delete;
    Note& operator=(const Note&) = delete;
    // The links live longer than this.
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
  // Since `begun_`. Beside the lock: most lookups have nothing that is sampled.
  std::atomic<uint64_t> requests_{0}, wanted_{0}, leading_{0};
  mutable Mutex mu_;
  ReuseDistances distances_ ABSL_GUARDED_BY(mu_);
  MonotonicTime begun_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> highest_;  // of distances_
};

}  // namespace kvkeep::store_internal
