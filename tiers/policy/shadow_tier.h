// ShadowTier: simulates a tier under some policy, with fingerprints only: no bytes, nothing parked,
// and absent chunks of a request come at once.
//
// ReuseLearner runs two of them beside each other and lets the better one lead. Fingerprints come
// as keys of FingerprintTable. Not thread-safe; no call takes time that grows with what it holds.
//
// A request can be played a slice at a time, each of so many steps. Between slices it keeps keys
// only, and looks them up again in each slice: several requests may be on their way, and any call
// may come in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/fingerprint_table.h"

namespace kvkeep {

class ShadowTier {
 public:
  using Key = FingerprintTable::Key;
  // Steps left of a slice, each some tens of nanoseconds. Work that has begun is completed, so the
  // number may fall below 0.
  using Steps = int64_t;
  static constexpr Steps kToTheEnd = INT64_MAX;

  virtual ~ShadowTier() = default;

  // Sets how many chunks it holds at most. Without a call there is no limit.
  void SetCapacity(uint32_t chunks) { capacity_ = chunks; }
  // Plays a request for a chain, head first, at once. Returns how many chunks at its head were
  // held. Absent chunks come, head first, until a newcomer is itself the first to go.
  virtual uint32_t Request(std::span<const Key> chain, MonotonicTime now) = 0;
  // Brings a chunk that no request asked for, behind `parent`, if there is one.
  virtual void Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) = 0;
  virtual bool Holds(Key chunk) const = 0;
  // Returns whether it has ever heard of the chunk, as far as it remembers.
  virtual bool Knows(Key chunk) const = 0;
  virtual std::optional<Key> Victim() = 0;
  // Drops the chunk if it is held: evicted, or else removed and forgotten.
  virtual void Drop(Key chunk, bool evicted) = 0;

  // A chunk came in, or made room for others.
  struct Change {
    Key chunk;
    bool held = false;  // from then on
  };
  // Returns what requests and Bring changed since the last call, in that order.
  std::vector<Change> TakeChanges() { return std::exchange(changes_, {}); }

 protected:
  // Returns for how many of `left` things, of `each` steps, the slice has time: at least one.
  static size_t InSlice(size_t left, Steps each, Steps steps) {
    return std::min<size_t>(left, static_cast<size_t>(std::max<Steps>(1, steps / each)));
  }

  uint32_t capacity_ = UINT32_MAX;
  std::vector<Change> changes_;
};

}  // namespace kvkeep
