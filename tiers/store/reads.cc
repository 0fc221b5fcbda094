#include "tiers/store/reads.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::store_internal {

Reads::Reads(const Clock* clock, Parts parts)
    : clock_(*clock),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      filler_(*parts.filler),
      promoter_(*parts.promoter),
      sessions_(*parts.sessions),
      served_(*parts.served),
      owners_(*parts.owners) {}

ChunkReader Reads::Pin(ChunkSlot slot, ReaderKind kind) {
  chunks_.Pin(slot);
  const Chunk& chunk = chunks_.table.at(slot);
  if (kind != ReaderKind::kOwner) chunks_.pool(chunk).lent_blocks.Take(chunk.blocks());
  if (kind == ReaderKind::kPeer) chunks_.pool(chunk).peer_blocks.Take(chunk.blocks());
  ChunkReader reader;
  reader.reads_ = this;
  reader.slot_ = slot.value();
  reader.kind_ = kind;
  reader.promotion_ = filler_.Share(slot);
  reader.shape_ = chunk.shape;
  reader.extents_ = chunk.g2;
  return reader;
}

void Reads::Unpin(ChunkSlot slot, ReaderKind kind) {
  Section section(&chunks_);
  const Chunk& chunk = chunks_.table.at(slot);
  if (kind != ReaderKind::kOwner) chunks_.pool(chunk).lent_blocks.Give(chunk.blocks());
  if (kind == ReaderKind::kPeer) chunks_.pool(chunk).peer_blocks.Give(chunk.blocks());
  chunks_.Unpin(slot);
}

absl::StatusOr<bool> Reads::IsPaid(const SessionToken& token, LeaseId lease) const {
  if (lease.value() == 0) return false;
  const Lease* const held = sessions_.leases.Find(token, lease);
  if (held != nullptr) return held->paid;
  return absl::FailedPreconditionError("lease_id is not of a lease of this session");
}

absl::Status Reads::ChargeRead(Session& session, bool leased) {
  KVKEEP_RETURN_IF_ERROR(sessions_.table.AskRates(session, !leased, true));
  if (!leased) sessions_.table.ChargeKeys(session, 1);
  return absl::OkStatus();
}

absl::StatusOr<ReadResult> Reads::Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                       bool transient) {
  ReadResult result;
  Section section(&chunks_);
  absl::StatusOr<Session*> session = sessions_.table.Find(token);
  if (!session.ok()) return session.status();
  KVKEEP_RETURN_IF_ERROR(sessions_.table.CheckGrant(**session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR((*session)->FindNamespace(id.ns).status());
  const TenantId tenant = (*session)->tenant();
  const absl::StatusOr<bool> paid = IsPaid(token, lease);
  if (!paid.ok()) return paid.status();
  ChunkSlot in_lease = kNoSlot;
  if (lease.value() != 0) {
    in_lease = FindInLease(section, token, lease, id);
    session = sessions_.table.Find(token);  // the walk may have yielded
    if (!session.ok()) return session.status();
  }
  ChunkSlot slot = chunks_.table.Find(id);
  // A leased chunk has its space in G2. If this one has none, it is another chunk, put after a
  // delete; or there is no chunk any more.
  if (slot == kNoSlot || !chunks_.table.at(slot).has_g2_space()) {
    slot = in_lease != kNoSlot ? in_lease : slot;
  }
  const bool leased = slot != kNoSlot && slot == in_lease;
  const bool costs_bytes = !leased || !*paid;
  absl::Status in_time = costs_bytes ? ChargeRead(**session, leased) : absl::OkStatus();
  if (!in_time.ok()) return in_time;
  if (!leased) NoteWanted(id);  // a leased chunk was asked for when the lease was granted
  const auto in_a_tier = [&](const Chunk& chunk) STORE_LOCKED {
    return chunk.has_g2_space() || tiers_.InG3(chunk);
  };
  if (slot == kNoSlot || !in_a_tier(chunks_.table.at(slot))) {
    ++chunks_.counters.read_misses;
    return result;
  }
  const Tier from = chunks_.table.at(slot).lies_in();
  result.from_g3 = from != Tier::kG2;
  if (from == Tier::kG3 && chunks_.table.at(slot).g2_state == G2State::kReading) {
    ++chunks_.counters.promotions_shared;
  }
  const TenantId owner = owners_.OwnerOf(id.ns);
  const bool lent = owner != tenant && !leased;  // a lease has counted it already
  if (lent && !chunks_.pool(owner).MayLend(chunks_.table.at(slot).blocks())) {
    ++chunks_.counters.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  const uint32_t yields = section.yields();
  if (!promoter_.EnsureInG2(section, {tenant, token}, owner, slot, kNoSlot, transient)) {
    const bool gone = section.yields() != yields && !chunks_.table.StillIs(slot, id);
    if (gone || chunks_.table.at(slot).failed()) {
      ++chunks_.counters.read_misses;
      return result;
    }
    ++chunks_.counters.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  result.reader = Pin(slot, lent ? ReaderKind::kOtherTenant : ReaderKind::kOwner);
  if (costs_bytes) CountRead(token, tenant, chunks_.table.at(slot), from);
  result.outcome = ReadOutcome::kHit;
  return result;
}

void Reads::NoteWanted(const ChunkId& id) {
  const EvictionPolicy::ChainLink asked{.fingerprint = chunks_.table.fingerprint(id)};
  if (!chunks_.life.Sampled(asked.fingerprint)) return;
  chunks_.life.OnWanted(std::span(&asked, 1), clock_.Now());
}

void Reads::CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, Tier from) {
  sessions_.table.ChargeBytes(tenant, chunk.shape.payload_bytes);
  Served served;
  served.Add(from, chunk.shape.payload_bytes);
  // The session may have been closed during a yield.
  served_.Count(sessions_.table.FindOrNull(token), chunk.id.ns, served);
}

ChunkSlot Reads::FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                             const ChunkId& id) {
  const Lease* held = sessions_.leases.Find(token, lease);
  if (held == nullptr) return kNoSlot;
  // Searches from the last entry in both directions. A lease gets no new entries.
  const size_t from = std::min(held->read_last + 1, held->entries.size());
  for (size_t step = 0;; ++step) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    held = sessions_.leases.Find(token, lease);
    if (held == nullptr || (step >= from && from + step >= held->entries.size())) return kNoSlot;
    for (const size_t at : {from + step, from - 1 - step}) {
      if (at >= held->entries.size()) continue;  // an index below 0 wraps around
      if (chunks_.table.at(held->entries[at].slot).id != id) continue;
      held->read_last = at;
      return held->entries[at].slot;
    }
  }
}

}  // namespace kvkeep::store_internal
