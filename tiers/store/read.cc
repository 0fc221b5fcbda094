// Reads of single chunks: what they cost, and what they find.
#include <algorithm>

#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {

absl::StatusOr<bool> Core::IsPaid(const SessionToken& token, LeaseId lease) const {
  if (lease.value() == 0) return false;
  const Lease* const held = leases_.Find(token, lease);
  if (held != nullptr) return held->paid;
  return absl::FailedPreconditionError("lease_id is not of a lease of this session");
}

absl::Status Core::ChargeRead(Session& session, bool leased) {
  KVKEEP_RETURN_IF_ERROR(sessions_.AskRates(session, !leased, true));
  if (!leased) sessions_.ChargeKeys(session, 1);
  return absl::OkStatus();
}

absl::StatusOr<ReadResult> Core::Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                      bool transient) {
  ReadResult result;
  Section section(&chunks_);
  absl::StatusOr<Session*> session = sessions_.Find(token);
  if (!session.ok()) return session.status();
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckGrant(**session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR((*session)->FindNamespace(id.ns).status());
  const TenantId tenant = (*session)->tenant();
  const absl::StatusOr<bool> paid = IsPaid(token, lease);
  if (!paid.ok()) return paid.status();
  ChunkSlot in_lease = kNoSlot;
  if (lease.value() != 0) {
    in_lease = FindInLease(section, token, lease, id);
    session = sessions_.Find(token);  // the walk may have yielded
    if (!session.ok()) return session.status();
  }
  ChunkSlot slot = table_.Find(id);
  // Leased chunks have their space in G2, so the one found is another, put after a delete; or there
  // is none any more.
  if (slot == kNoSlot || !table_.at(slot).has_g2_space()) {
    slot = in_lease != kNoSlot ? in_lease : slot;
  }
  const bool leased = slot != kNoSlot && slot == in_lease;
  const bool costs_bytes = !leased || !*paid;
  absl::Status in_time = costs_bytes ? ChargeRead(**session, leased) : absl::OkStatus();
  if (!in_time.ok()) return in_time;
  if (!leased) NoteWanted(id);  // what a lease holds was asked for when it was granted
  if (slot == kNoSlot || !(table_.at(slot).has_g2_space() || disk_.tiers.InG3(table_.at(slot)))) {
    ++counters_.read_misses;
    return result;
  }
  const Tier from = table_.at(slot).lies_in();
  result.from_g3 = from != Tier::kG2;
  if (from == Tier::kG3 && table_.at(slot).g2_state == G2State::kReading) {
    ++counters_.promotions_shared;
  }
  const TenantId owner = owners_.OwnerOf(id.ns);
  const bool lent = owner != tenant && !leased;  // leased, it was counted when it was
  if (lent && !pool(owner).MayLend(table_.at(slot).blocks())) {
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  const uint32_t yields = section.yields();
  if (!promoter_.EnsureInG2(section, {tenant, token}, owner, slot, kNoSlot, transient)) {
    const bool gone = section.yields() != yields && !table_.StillIs(slot, id);
    if (gone || table_.at(slot).failed()) {
      ++counters_.read_misses;
      return result;
    }
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  chunks_.Pin(slot);
  if (costs_bytes) CountRead(token, tenant, table_.at(slot), from);
  if (lent) pool(owner).lent_blocks += table_.at(slot).blocks();
  result.outcome = ReadOutcome::kHit;
  result.reader.core_ = this;
  result.reader.slot_ = slot.value();
  result.reader.lent_ = lent;
  result.reader.shape_ = table_.at(slot).shape;
  result.reader.extents_ = table_.at(slot).g2;
  return result;
}

void Core::NoteWanted(const ChunkId& id) {
  const EvictionPolicy::ChainLink asked{.fingerprint = table_.fingerprint(id)};
  if (!life_.Sampled(asked.fingerprint)) return;
  life_.OnWanted(std::span(&asked, 1), deps_.clock->Now());
}

void Core::CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, Tier from) {
  sessions_.ChargeBytes(tenant, chunk.shape.payload_bytes);
  Served served;
  served.Add(from, chunk.shape.payload_bytes);
  // The session may have been closed while the lock was let go of.
  CountServed(sessions_.FindOrNull(token), chunk.id.ns, served);
}

ChunkSlot Core::FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                            const ChunkId& id) {
  const Lease* held = leases_.Find(token, lease);
  if (held == nullptr) return kNoSlot;
  // From where the last one was, in both directions. A lease gets no new entries.
  const size_t from = std::min(held->read_last + 1, held->entries.size());
  for (size_t step = 0;; ++step) {
    section.YieldIfSpent();
    Count(work::kFind);
    held = leases_.Find(token, lease);
    if (held == nullptr || (step >= from && from + step >= held->entries.size())) return kNoSlot;
    for (const size_t at : {from + step, from - 1 - step}) {
      if (at >= held->entries.size()) continue;  // below 0 is above all
      if (table_.at(held->entries[at].slot).id != id) continue;
      held->read_last = at;
      return held->entries[at].slot;
    }
  }
}

}  // namespace kvkeep::store_internal
