// What is offered to the place beyond the node (remote_tier.h): chunks that were put, or used
// again; and images that are to be written anew before they expire there (remote_ages.h).
#include "tiers/base/check.h"
#include "tiers/store/core.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {

void Core::OfferPutToRemote(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool wanted) {
  if (!wanted) table_.at(slot).beyond = RemoteAges::kNever;
  if (remote_ == nullptr || !wanted) return;
  if (remote_->unused.empty()) return OfferToRemote(slot, parent);
  KVKEEP_CHECK(slot.value() < remote_->unused.size() && !remote_->unused[slot.value()]);
  remote_->unused[slot.value()] = true;
}

// Head first, so that what is there of a prompt is a prefix.
void Core::OfferUsed(Section& section, const LookupState& lookup) {
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !remote_->WantsUsed(slot, table_.at(slot), lookup.step)) continue;
    if (!table_.StillIs(slot, lookup.id(i)) || !ReadableNow(table_.at(slot))) continue;
    if (remote_->awaits_use(slot)) {
      remote_->EndWait(slot);
      const size_t parts = lookup.chunks.parts.size();
      std::optional<ChunkKey> parent;
      if (i >= parts) parent = lookup.chunks.keys[i / parts - 1];
      OfferToRemote(slot, parent);
    } else {
      OfferToRefresh(slot);
    }
  }
}

void Core::OfferToRemote(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  if (limits_.remote_write_bytes_per_second == 0) return;
  Chunk& chunk = table_.at(slot);
  ++remote_->counters.offered_chunks;
  RemoteWrites::Offered offered{
      .id = chunk.id, .tenant = chunk.tenant, .bytes = chunk.blocks() * kBlockBytes};
  if (parent.has_value()) offered.parent = {chunk.id.ns, *parent, chunk.id.part};
  if (!remote_->writes.Offer(offered)) {
    ++remote_->counters.dropped_chunks;
    remote_->SetUnwritten(slot, true);
    return;
  }
  chunk.beyond = RemoteAges::kUnderWay;
  PumpLater(*remote_);
}

void Core::OfferToRefresh(ChunkSlot slot) {
  Chunk& chunk = table_.at(slot);
  ++remote_->counters.aged_chunks;
  if (!remote_->ages.Offer(chunk.id)) {
    ++remote_->counters.dropped_refreshes;
    return;
  }
  chunk.beyond = RemoteAges::kUnderWay;
  PumpLater(*remote_);
}

// They are fewer than writes, so that what is new always finds room in the queue.
void Core::PumpAges() {
  RemoteTier& remote = *remote_;
  while (remote.ages.MayAsk() && remote.writes.has_room_for_old() && remote.readable() &&
         remote.source().may_ask_age()) {
    if (Spent()) return PumpLater(remote);
    Count(work::kStart);
    Later([this, id = remote.ages.Next(), source = &remote.source()] {
      source->Age(id, [this, id](const absl::StatusOr<std::chrono::seconds>& age) {
        OnAge(id, age);
      });
    });
  }
}

// The chunk may be gone, or another one that is on its way there itself.
void Core::OnAge(const ChunkId& id, const absl::StatusOr<std::chrono::seconds>& age) {
  Section section(&chunks_);
  RemoteTier& remote = *remote_;
  remote.ages.End();
  const ChunkSlot slot = table_.Find(id);
  const bool told = age.ok() || absl::IsNotFound(age.status());
  if (told) PumpLater(remote);  // else at the next tick: it may not be asked at all
  if (slot == kNoSlot || !told) {
    if (slot != kNoSlot) table_.at(slot).beyond = RemoteAges::kUnknown;  // at its next use
    ++remote.counters.dropped_refreshes;
    return;
  }
  Chunk& chunk = table_.at(slot);
  if (age.ok()) chunk.beyond = remote.ages.Of(*age, deps_.clock->Now());
  if (age.ok() && chunk.beyond != RemoteAges::kUnknown) {
    ++remote.counters.young_chunks;
  } else if (remote.writes.Offer({.id = id,
                                  .tenant = chunk.tenant,
                                  .bytes = chunk.blocks() * kBlockBytes,
                                  .replace = age.ok()})) {
    chunk.beyond = RemoteAges::kUnderWay;
  } else {
    chunk.beyond = RemoteAges::kUnknown;
    ++remote.counters.dropped_refreshes;
  }
}

}  // namespace kvkeep::store_internal
