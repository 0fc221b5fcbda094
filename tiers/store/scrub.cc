// Scrub: chunks that only G3 holds are read and checked in turn, so many bytes a second, so that
// what has rotted there is found before somebody wants it.
//
// One at a time, as a promotion of a transient chunk that nobody waits for: what a promotion checks
// is checked, its damage is dealt with as there, and its space in G2 is given back at once. It may
// cost G2 the least wanted of its chunks, one chunk's worth of space. What is in G2 as well is left
// for a later round, as is what cannot be read now. What a tenant left that is no more has no space
// in G2 and no reader: it is passed by and counted, and goes first when space is wanted (shares.h).
//
// Before that, and whatever the rate: chunks in doubt of which another record is kept (replace.cc);
// then, at the rate, the others in doubt, which a whole read takes away: used last, read first.
// Which is next is Scrubber's; how it is read is here.
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

void Core::ScrubNext(Section& section) {
  const auto only_in_g3 = [this](const Chunk& chunk) STORE_LOCKED {
    return !chunk.has_g2_space() && InG3(chunk);
  };
  const auto has_tenant = [this](const Chunk& chunk) STORE_LOCKED {
    return HasPool(chunk.tenant);
  };
  const auto doubted_twice = [this](const Chunk& chunk) STORE_LOCKED {
    return DoubtedTwice(chunk);
  };
  scrubber_.BeginLook();
  while (!draining_) {
    const std::optional<ChunkSlot> slot = scrubber_.Next({only_in_g3, has_tenant, doubted_twice});
    if (!slot.has_value()) return;
    ScrubChunk(section, *slot);
  }
}

void Core::ScrubChunk(Section& section, ChunkSlot slot) {
  const ChunkId id = table_.at(slot).id;
  const bool transient = table_.at(slot).transient;
  const TenantId tenant = table_.at(slot).tenant;
  const bool coming = EnsureInG2(section, {tenant, {}}, tenant, slot, kNoSlot, true);
  Promotion* const promotion = filler_.Find(slot);
  // No space; or gone, or somebody wanted it in the meantime.
  if (!coming || !table_.StillIs(slot, id) || promotion == nullptr) {
    return scrubber_.Ended(false);
  }
  scrubber_.Reading(table_.at(slot).blocks() * kBlockBytes);
  // Not pinned: where the device goes away, the chunk stays what it was.
  filler_.AwaitAll(*promotion, [this, slot, id, transient](const absl::Status& status) {
    OnScrubbed(slot, id, transient, status);
  });
}

void Core::OnScrubbed(ChunkSlot slot, const ChunkId& id, bool transient,
                      const absl::Status& status) {
  Section section(&chunks_);
  scrubber_.Ended(true);
  ++counters_.scrubbed_chunks;
  if (absl::IsDataLoss(status)) ++counters_.scrub_damaged_chunks;
  if (table_.StillIs(slot, id)) {
    Change chunk(&chunks_, slot);
    chunk->transient = transient;
    if (status.ok()) counters_.scrubbed_bytes += chunk->shape.payload_bytes;
    if (chunk->evictable_from_g2()) {
      chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  ScrubNext(section);
}

}  // namespace kvkeep::store_internal
