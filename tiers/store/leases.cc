#include "tiers/store/leases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void Lessee::Add(ChunkSlot slot, TenantId owner, uint64_t blocks) {
  if (owner != tenant || ++own_[slot] == 1) blocks_ += blocks;
}

void Lessee::Remove(ChunkSlot slot, TenantId owner, uint64_t blocks) {
  if (owner == tenant) {
    const auto found = own_.find(slot);
    KVKEEP_CHECK(found != own_.end());
    if (--found->second > 0) return;
    own_.erase(found);
  }
  KVKEEP_CHECK(blocks_ >= blocks);
  blocks_ -= blocks;
}

const Lease* Lessee::Find(LeaseId id) const {
  const auto found = leases_.find(id.value());
  return found == leases_.end() ? nullptr : &found->second;
}

LeaseId Lessee::FindRequest(uint64_t client_request_id) const {
  const auto found = by_request_.find(client_request_id);
  return found == by_request_.end() ? LeaseId(0) : found->second;
}

void Lessee::File(LeaseId id, Lease lease) {
  leased_bytes_ += lease.bytes;
  if (lease.client_request_id != 0) {
    KVKEEP_CHECK(by_request_.emplace(lease.client_request_id, id).second);
  }
  KVKEEP_CHECK(leases_.emplace(id.value(), std::move(lease)).second);
}

Lease& Lessee::at(LeaseId id) {
  const auto found = leases_.find(id.value());
  KVKEEP_CHECK(found != leases_.end());
  return found->second;
}

Lease Lessee::Take(LeaseId id) {
  Lease lease = std::move(at(id));
  leases_.erase(id.value());
  leased_bytes_ -= lease.bytes;
  if (lease.client_request_id != 0) by_request_.erase(lease.client_request_id);
  return lease;
}

void Lessee::LimitKeys(LeaseId id, uint32_t keys) {
  Lease& lease = at(id);
  lease.keys = std::min(lease.keys, keys);
}

Lease::Entry Lessee::TakeLast(LeaseId id, uint64_t bytes) {
  Lease& lease = at(id);
  KVKEEP_CHECK(!lease.entries.empty());
  const Lease::Entry entry = lease.entries.back();
  lease.entries.pop_back();
  lease.bytes -= bytes;
  leased_bytes_ -= bytes;
  return entry;
}

G2Pool& LeaseBook::pool(TenantId tenant) const {
  KVKEEP_CHECK(tenant.value() < pools_.size());
  return *pools_[tenant.value()];
}

void LeaseBook::Open(const SessionToken& session, TenantId tenant) {
  KVKEEP_CHECK(lessees_.emplace(session, std::make_shared<Lessee>(tenant)).second);
}

std::shared_ptr<Lessee> LeaseBook::Close(const SessionToken& session, bool revoked) {
  const auto found = lessees_.find(session);
  KVKEEP_CHECK(found != lessees_.end());
  std::shared_ptr<Lessee> ended = std::move(found->second);
  lessees_.erase(found);
  if (ended->asked) --pool(ended->tenant).lessees;
  counters_.leases_revoked += revoked ? ended->leases().size() : 0;
  return ended;
}

const std::shared_ptr<Lessee>& LeaseBook::of(const SessionToken& session) const {
  const auto found = lessees_.find(session);
  KVKEEP_CHECK(found != lessees_.end());
  return found->second;
}

const Lease* LeaseBook::Find(const SessionToken& session, LeaseId id) const {
  const auto found = lessees_.find(session);
  return found == lessees_.end() ? nullptr : found->second->Find(id);
}

void LeaseBook::NoteAsks(Lessee& holder) {
  if (!std::exchange(holder.asked, true)) ++pool(holder.tenant).lessees;
}

absl::Status LeaseBook::CheckRoom(const Lessee& holder) const {
  if (holder.leases().size() < most_leases_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("leases: this session holds ", most_leases_, ", the most allowed"));
}

bool LeaseBook::MayHold(const Lessee& holder, ChunkSlot slot) const {
  const Chunk& chunk = table_.at(slot);
  const G2Pool& owner = pool(chunk.tenant);
  const G2Pool& own = pool(holder.tenant);
  // What is pinned already takes no more of the limit.
  if (!owner.MayLease(chunk.pins == 0 ? chunk.blocks() : 0)) return false;
  const bool lent = chunk.tenant != holder.tenant;
  if (lent && (!owner.MayLend(chunk.blocks()) || !own.MayLease(chunk.blocks()))) return false;
  if (own.lessees <= 1 || (!lent && holder.Holds(slot))) return true;
  return own.LeavesEnough(holder.blocks(), chunk.blocks(), !lent && chunk.pins > 0);
}

void LeaseBook::Hold(Lessee& holder, ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  holder.Add(slot, chunk.tenant, chunk.blocks());
  if (chunk.tenant == holder.tenant) return;
  pool(chunk.tenant).lent_blocks += chunk.blocks();
  pool(holder.tenant).borrowed_blocks += chunk.blocks();
}

void LeaseBook::LetGo(Lessee& holder, ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  holder.Remove(slot, chunk.tenant, chunk.blocks());
  if (chunk.tenant == holder.tenant) return;
  pool(chunk.tenant).lent_blocks -= chunk.blocks();
  pool(holder.tenant).borrowed_blocks -= chunk.blocks();
}

LeaseId LeaseBook::File(Lessee& holder, Lease lease) {
  const LeaseId id(next_++);
  holder.File(id, std::move(lease));
  ++counters_.leases_granted;
  return id;
}

struct LeaseBook::Held {
  std::vector<uint64_t> lent, borrowed, lessees;  // by TenantId
  std::vector<uint64_t> pins;                     // by slot
};

void LeaseBook::CheckLessee(const Lessee& lessee, Held& held) const {
  absl::btree_map<ChunkSlot, uint32_t> own;
  uint64_t blocks = 0, bytes = 0;
  for (const auto& [id, lease] : lessee.leases()) {
    KVKEEP_CHECK(id < next_);
    uint64_t of_lease = 0;
    for (const Lease::Entry& entry : lease.entries) {
      const Chunk& chunk = table_.at(entry.slot);
      of_lease += chunk.blocks() * kBlockBytes;
      if (chunk.tenant == lessee.tenant) {
        ++own[entry.slot];
        continue;
      }
      ++held.pins[entry.slot.value()];
      blocks += chunk.blocks();
      held.lent[chunk.tenant.value()] += chunk.blocks();
      held.borrowed[lessee.tenant.value()] += chunk.blocks();
    }
    KVKEEP_CHECK(lease.bytes == of_lease);
    bytes += of_lease;
    if (lease.client_request_id != 0) {
      KVKEEP_CHECK(lessee.FindRequest(lease.client_request_id) == LeaseId(id));
    }
  }
  KVKEEP_CHECK(lessee.leased_bytes() == bytes);
  for (const auto& [slot, entries] : own) {
    KVKEEP_CHECK(lessee.Holds(slot) && lessee.own().at(slot) >= entries);
  }
  for (const auto& [slot, entries] : lessee.own()) {
    KVKEEP_CHECK(table_.at(slot).tenant == lessee.tenant && entries > 0);
    blocks += table_.at(slot).blocks();
    held.pins[slot.value()] += entries;
  }
  KVKEEP_CHECK(lessee.blocks() >= blocks);
  const G2Pool& of = pool(lessee.tenant);
  KVKEEP_CHECK(of.pinned_blocks + of.borrowed_blocks >= lessee.blocks());
  held.lessees[lessee.tenant.value()] += lessee.asked;
}

void LeaseBook::CheckInvariants() const {
  const std::vector<uint64_t> none(pools_.size());
  Held held{none, none, none, std::vector<uint64_t>(table_.slot_end())};
  for (const auto& [session, lessee] : lessees_) CheckLessee(*lessee, held);
  for (size_t t = 0; t < pools_.size(); ++t) {
    KVKEEP_CHECK(pools_[t]->lent_blocks >= held.lent[t]);  // more: is read
    KVKEEP_CHECK(pools_[t]->borrowed_blocks >= held.borrowed[t]);
    KVKEEP_CHECK(pools_[t]->lessees == held.lessees[t]);
  }
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    KVKEEP_CHECK(table_.at(ChunkSlot(i)).pins >= held.pins[i]);
  }
}

}  // namespace kvkeep::store_internal
