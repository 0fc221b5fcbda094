// ShadowTier: what a tier would hold under some policy, as fingerprints only: no bytes, nothing
// parked, and whatever a request asks for and is not there comes at once.
//
// ReusePolicy runs two of them beside each other and lets the better one lead. Fingerprints come as
// keys of FingerprintTable. Not thread-safe; no call takes time that grows with what it holds.
//
// A request can be played a slice at a time, each of so many steps. What it knows between them are
// keys, and what it finds by them is looked for again in each slice: several requests may be on
// their way, and all else may happen in between.
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
  // What is left of a slice: a step is some tens of nanoseconds. What has begun is ended, and so it
  // may fall below 0.
  using Steps = int64_t;
  static constexpr Steps kToTheEnd = INT64_MAX;

  virtual ~ShadowTier() = default;

  // How many chunks it holds at most; until it is told, as many as come.
  void SetCapacity(uint32_t chunks) { capacity_ = chunks; }
  // A request for a chain, head first, played at once. Returns how many chunks at its head it held.
  // What is absent comes, head first, until a newcomer is itself the first to go.
  virtual uint32_t Request(std::span<const Key> chain, MonotonicTime now) = 0;
  // A chunk that came though no request asked for it, behind that parent, if there is one.
  virtual void Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) = 0;
  virtual bool Holds(Key chunk) const = 0;
  // Whether it has ever heard of it, as far as it remembers.
  virtual bool Knows(Key chunk) const = 0;
  virtual std::optional<Key> Victim() = 0;
  // Gone, if it was there: evicted, or removed and to be forgotten.
  virtual void Drop(Key chunk, bool evicted) = 0;

  // Chunks that made room for others since the last call.
  std::vector<Key> TakeGone() { return std::exchange(gone_, {}); }

 protected:
  // Of `left` things that take so many steps each, those that the slice has time for: one at least.
  static size_t InSlice(size_t left, Steps each, Steps steps) {
    return std::min<size_t>(left, static_cast<size_t>(std::max<Steps>(1, steps / each)));
  }

  uint32_t capacity_ = UINT32_MAX;
  std::vector<Key> gone_;
};

}  // namespace kvkeep
