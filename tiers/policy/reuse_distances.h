// ReuseDistances: measures, on a sample of bounded size, how long ago requested chunks were last
// used. So one pass, or a running daemon, tells the hit ratio of an LRU of every size at once.
//
// Spatial sampling by hash (SHARDS, Waldspurger et al., FAST '15): a chunk is in the sample, always
// or never, when its hash is below a threshold. Distances in the sample are scaled up by the share
// that is sampled. When the sample has more than `most_keys`, the highest hash leaves and becomes
// the threshold. Each count is weighted by the share at its time.
//
// As the LRU of eviction_policy.h counts: a request's chunks are measured before any of them moves,
// then its head ends as the youngest. So the head of a chain is never further than its tail, and
// the chunks that are near enough are a leading run. Chunks that are asked for and never stored
// take no space.
//
// A pure state machine; not thread-safe. A chunk outside of the sample costs a hash; one within
// some 200 ns, and every `most_keys` of these a pass over all. 80 bytes or so a key.
#pragma once

#include <absl/container/btree_map.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/reuse_curve.h"

namespace kvkeep {

class ReuseDistances {
 public:
  struct Options {
    uint32_t most_keys = 8192;  // at least 1
    // Chunks further away than this are forgotten, and cold when they come again. This keeps the
    // sample of an object that runs for ever to chunks that matter.
    uint64_t farthest_bytes = UINT64_MAX;
    uint64_t highest = UINT64_MAX;  // hash in the sample at the start; falls later
  };
  explicit ReuseDistances(const Options& options);

  static uint64_t HashOf(Fingerprint chunk);
  // Returns the threshold: hashes up to it are in the sample. Never rises, except by Clear.
  uint64_t highest() const { return highest_; }
  bool Sampled(Fingerprint chunk) const { return HashOf(chunk) <= highest_; }

  // Counts a request for these chunks, head first. Slots are ignored.
  void OnRequest(std::span<const EvictionPolicy::ChainLink> chain);
  // The same for a caller that has sampled by itself, by the present or an earlier highest(): the
  // hashes of the sampled chunks out of `wanted`, head first.
  void OnRequest(std::span<const uint64_t> sampled_hashes, uint64_t wanted);
  // Tells that the chunk came. Does nothing if it was there before.
  void OnStored(Fingerprint chunk, uint64_t bytes);
  // Tells of a chunk that was stored before counting began. Counts nothing; the chunk becomes the
  // youngest.
  void OnFound(Fingerprint chunk, uint64_t bytes);
  // Tells that the chunk is gone for another reason than its age, hence from a tier of any size.
  void OnRemoved(Fingerprint chunk);
  // Returns to the initial state.
  void Clear();

  const ReuseCurve& curve() const { return curve_; }
  size_t size() const { return numbers_.size(); }
  double share() const;  // of all chunks, in the sample

 private:
  struct Key {
    uint64_t hash = 0, bytes = 0;  // 0 bytes: asked for, not stored
    uint32_t place = 0;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void Measure(uint64_t hash);
  void MoveToTop(uint64_t hash);
  void SetBytes(uint64_t hash, uint64_t bytes);
  uint32_t NewKey(uint64_t hash);
  void Erase(uint32_t number);
  void Weigh(const Key& key, bool in);
  uint64_t BytesUpTo(uint32_t place) const;
  uint32_t TakePlace();
  void Compact();
  void ForgetFarthest();

  const Options options_;
  uint64_t highest_ = UINT64_MAX;
  absl::btree_map<uint64_t, uint32_t> numbers_;  // by hash: the number of the key
  std::vector<Key> keys_;                        // by number
  std::vector<uint32_t> free_;                   // numbers
  // Places in the order of use, the youngest last. Twice as many as keys: moving leaves holes.
  std::vector<uint32_t> at_place_;  // numbers, or kNone
  std::vector<uint64_t> sums_;      // bytes by place, as a Fenwick tree; from 1
  uint32_t next_place_ = 0;
  uint32_t oldest_place_ = 0;    // none below
  uint64_t bytes_ = 0;           // of all keys
  std::vector<uint64_t> asked_;  // of one request; kept for its memory
  ReuseCurve curve_;
};

}  // namespace kvkeep
