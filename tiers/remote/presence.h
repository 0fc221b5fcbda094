// Presence: remembers for a while which chunks a source has or lacks. Bounded: an old entry gives
// way to a new one. An error is never an entry, and an answer that contradicts an entry replaces it
// at once, so that nothing is believed to be there for ever.
//
// Chunks are told apart by 56 bits of a hash with a secret seed; a false entry leads to a miss. A
// plain value: time comes from the caller. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/key.h"

namespace kvkeep {

class Presence {
 public:
  enum class State : uint8_t { kUnknown, kPresent, kAbsent };
  static constexpr size_t kWays = 4, kEntryBytes = 16;

  // `entries`: rounded up to a power of two, at least kWays.
  Presence(size_t entries, uint64_t seed);

  State Look(const ChunkId& id, MonotonicTime now) const;
  void Note(const ChunkId& id, State state, MonotonicTime now,
            std::chrono::nanoseconds good_for);
  // Drops what is known of the chunk.
  void Forget(const ChunkId& id);

  size_t entries() const { return sets_.size() * kWays; }

 private:
  struct Entry {
    uint64_t fingerprint : 56 = 0;
    uint64_t state : 8 = 0;
    MonotonicTime until{MonotonicTime::min()};
  };
  static_assert(sizeof(Entry) == kEntryBytes);
  using Set = std::array<Entry, kWays>;

  uint64_t FingerprintOf(uint64_t hash) const { return hash >> 8; }
  Set& SetOf(uint64_t hash) { return sets_[hash & (sets_.size() - 1)]; }
  const Set& SetOf(uint64_t hash) const { return sets_[hash & (sets_.size() - 1)]; }

  const ChunkIdHash hash_;
  std::vector<Set> sets_;
};

}  // namespace kvkeep
