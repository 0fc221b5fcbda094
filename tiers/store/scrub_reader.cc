#include "tiers/store/scrub_reader.h"

#include "tiers/store/change.h"

namespace kvkeep::store_internal {

ScrubReader::ScrubReader(Chunks* chunks, DeviceTiers* tiers, const Records* records,
                         Scrubber* scrubber, Promoter* promoter, Promotions* promotions)
    : chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      scrubber_(*scrubber),
      promoter_(*promoter),
      promotions_(*promotions) {}

void ScrubReader::Next(Section& section) {
  const auto only_in_g3 = [this](const Chunk& chunk) STORE_LOCKED {
    return !chunk.has_g2_space() && tiers_.InG3(chunk);
  };
  const auto has_tenant = [this](const Chunk& chunk) STORE_LOCKED {
    return chunks_.HasPool(chunk.tenant);
  };
  const auto doubted_twice = [this](const Chunk& chunk) STORE_LOCKED {
    return records_.DoubtedTwice(chunk);
  };
  scrubber_.BeginLook();
  while (!chunks_.draining) {
    const std::optional<ChunkSlot> slot = scrubber_.Next({only_in_g3, has_tenant, doubted_twice});
    if (!slot.has_value()) return;
    Read(section, *slot);
  }
}

void ScrubReader::Read(Section& section, ChunkSlot slot) {
  const ChunkId id = chunks_.table.at(slot).id;
  const bool transient = chunks_.table.at(slot).transient;
  const TenantId tenant = chunks_.table.at(slot).tenant;
  const bool coming = promoter_.EnsureInG2(section, {tenant, {}}, tenant, slot, kNoSlot, true);
  Promotion* const promotion = promotions_.Find(slot);
  // There was no space, or the chunk is gone, or somebody wanted it meanwhile.
  if (!coming || !chunks_.table.StillIs(slot, id) || promotion == nullptr) {
    return scrubber_.Ended(false);
  }
  scrubber_.Reading(chunks_.table.at(slot).blocks() * kBlockBytes);
  // Does not pin the chunk, so that it stays as it was if the device goes away.
  promotions_.AwaitAll(*promotion, [this, slot, id, transient](const absl::Status& status) {
    OnRead(slot, id, transient, status);
  });
}

void ScrubReader::OnRead(ChunkSlot slot, const ChunkId& id, bool transient,
                      const absl::Status& status) {
  Section section(&chunks_);
  scrubber_.Ended(true);
  ++chunks_.counters.scrubbed_chunks;
  if (absl::IsDataLoss(status)) ++chunks_.counters.scrub_damaged_chunks;
  if (chunks_.table.StillIs(slot, id)) {
    Change chunk(&chunks_, slot);
    chunk->transient = transient;
    if (status.ok()) chunks_.counters.scrubbed_bytes += chunk->shape.payload_bytes;
    if (chunk->evictable_from_g2()) {
      chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  Next(section);
}

}  // namespace kvkeep::store_internal
