#include "tiers/store/peer_reads.h"

#include <algorithm>
#include <vector>

#include "tiers/base/canary.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep::store_internal {

PeerReads::PeerReads(Parts parts)
    : chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      promoter_(*parts.promoter),
      reads_(*parts.reads),
      beyond_(parts.beyond) {}

std::optional<Tier> PeerReads::TierOf(ChunkSlot slot) const {
  if (slot == kNoSlot) return std::nullopt;
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.in_g2()) return Tier::kG2;
  // A promotion from G3 marks the chunk there, a recall cannot.
  const bool recalled = chunk.g2_state == G2State::kReading && !chunk.g3_reading;
  if (recalled || chunk.failed() || !chunks_.HasPool(chunk.tenant)) return std::nullopt;
  if (!tiers_.InG3(chunk)) return std::nullopt;
  return Tier::kG3;
}

PeerSource::Found PeerReads::Look(std::span<const ChunkId> ids) {
  constexpr size_t kAhead = 8;  // entries of the table that are fetched from memory at once
  PeerSource::Found found(ids.size());
  for (size_t i = 0; i < std::min(kAhead, ids.size()); ++i) chunks_.PrefetchFind(ids[i]);
  Section section(&chunks_);
  for (size_t i = 0; i < ids.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    if (i + kAhead < ids.size()) chunks_.PrefetchFind(ids[i + kAhead]);
    const ChunkSlot slot = chunks_.table.Find(ids[i]);
    const std::optional<Tier> tier = TierOf(slot);
    if (!tier.has_value()) continue;
    found[i] = PeerChunk{.shape = chunks_.table.at(slot).shape, .tier = *tier};
  }
  return found;
}

void PeerReads::ForEach(const TenantTags& tenants, absl::FunctionRef<void(ChunkSlot, Tier)> visit,
                        absl::FunctionRef<bool()> between) {
  for (uint32_t first = 0, end = 1; first < end; first += kVisitedAtOnce) {
    {
      Section section(&chunks_, Section::Kind::kMaintenance);
      end = chunks_.table.slot_end();
      for (uint32_t i = first; i < std::min(end, first + kVisitedAtOnce); ++i) {
        section.YieldIfSpent();
        chunks_.Count(work::kFind);
        const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
        if (!chunk.live || chunk.detached || !tenants.contains(TenantTagOf(chunk.id.ns))) continue;
        const std::optional<Tier> tier = TierOf(ChunkSlot(i));
        if (tier.has_value()) visit(ChunkSlot(i), *tier);
      }
    }
    if (!between()) return;
  }
}

void PeerReads::NameAll(const TenantTags& tenants, TakeName take) {
  std::vector<ChunkId> some;
  some.reserve(kVisitedAtOnce);  // not under the lock
  ForEach(
      tenants,
      [&](ChunkSlot slot, Tier tier) {
        chunks_.AssertHeld();
        if (tier == Tier::kG3 && Planted(Canary::kSummaryLacks)) return;
        some.push_back(chunks_.table.at(slot).id);
      },
      [&] {
        const bool go_on = std::all_of(some.begin(), some.end(), take);
        some.clear();
        return go_on;
      });
}

ReadResult PeerReads::Read(const ChunkId& id) {
  ReadResult result;
  chunks_.PrefetchFind(id);
  Section section(&chunks_);
  chunks_.Count(work::kFind);
  const auto miss = [&] { return std::move(result); };
  const auto busy = [&] {
    result.outcome = ReadOutcome::kBusy;
    return std::move(result);
  };
  const ChunkSlot slot = chunks_.table.Find(id);
  const std::optional<Tier> from = TierOf(slot);
  if (!from.has_value()) return miss();
  const TenantId owner = chunks_.table.at(slot).tenant;
  if (!chunks_.pool(owner).MayLendToPeers(chunks_.table.at(slot).blocks())) return busy();
  const uint32_t yields = section.yields();
  const bool coming = promoter_.EnsureInG2(section, {owner, ReadQueue::kPeers}, owner, slot,
                                           kNoSlot, /*transient=*/true);
  if (section.yields() != yields) {
    // The chunk may be gone, be another put's, or come from beyond the node; others may have pinned
    // all that may be lent.
    if (!chunks_.table.StillIs(slot, id) || !TierOf(slot).has_value()) return miss();
    if (!chunks_.pool(owner).MayLendToPeers(chunks_.table.at(slot).blocks())) return busy();
  }
  if (!coming) return busy();
  result.reader = reads_.Pin(slot, ReaderKind::kPeer);
  result.from_g3 = from != Tier::kG2;
  result.outcome = ReadOutcome::kHit;
  OfferBeyond(section, slot);
  return result;
}

// REQUIRES: the chunk is pinned.
void PeerReads::OfferBeyond(Section& section, ChunkSlot slot) {
  if (beyond_ == nullptr || chunks_.draining || !beyond_->tier.awaits_use(slot)) return;
  const ChunkId id = chunks_.table.at(slot).id;
  const EvictionPolicy::ChainLink found{.slot = slot};
  beyond_->changes.OfferUsed(section, {id.ns, std::span(&id.key, 1), std::span(&id.part, 1)},
                             std::span(&found, 1), RemoteAges::kUnknown);
}

}  // namespace kvkeep::store_internal
