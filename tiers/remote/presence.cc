#include "tiers/remote/presence.h"

#include <algorithm>
#include <bit>

#include "tiers/base/check.h"

namespace kvkeep {

Presence::Presence(size_t entries, uint64_t seed)
    : hash_{seed}, sets_(std::bit_ceil(std::max(entries, kWays)) / kWays) {}

Presence::State Presence::Look(const ChunkId& id, MonotonicTime now) const {
  const uint64_t hash = hash_(id);
  for (const Entry& entry : SetOf(hash)) {
    if (entry.fingerprint == FingerprintOf(hash) && now < entry.until) {
      return static_cast<State>(entry.state);
    }
  }
  return State::kUnknown;
}

void Presence::Note(const ChunkId& id, State state, MonotonicTime now,
                    std::chrono::nanoseconds good_for) {
  KVKEEP_CHECK(state != State::kUnknown);
  Forget(id);
  const uint64_t hash = hash_(id);
  Set& set = SetOf(hash);
  // The entry that ends first; ended ones come before all others.
  Entry& entry = *std::min_element(set.begin(), set.end(), [](const Entry& a, const Entry& b) {
    return a.until < b.until;
  });
  entry.fingerprint = FingerprintOf(hash) & ((uint64_t{1} << 56) - 1);
  entry.state = static_cast<uint64_t>(state);
  entry.until = now + good_for;
}

void Presence::Forget(const ChunkId& id) {
  const uint64_t hash = hash_(id);
  for (Entry& entry : SetOf(hash)) {
    if (entry.fingerprint == FingerprintOf(hash)) entry.until = MonotonicTime::min();
  }
}

}  // namespace kvkeep
