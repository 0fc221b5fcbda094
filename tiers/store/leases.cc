#include "tiers/store/leases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

const Lease* LeaseHolder::Find(LeaseId id) const {
  const auto found = leases_.find(id.value());
  return found == leases_.end() ? nullptr : &found->second;
}

LeaseId LeaseHolder::FindRequest(uint64_t client_request_id) const {
  const auto found = by_request_.find(client_request_id);
  return found == by_request_.end() ? LeaseId(0) : found->second;
}

void LeaseHolder::File(LeaseId id, Lease lease) {
  leased_bytes_.Take(lease.bytes);
  if (lease.client_request_id != 0) {
    KVKEEP_CHECK(by_request_.emplace(lease.client_request_id, id).second);
  }
  KVKEEP_CHECK(leases_.emplace(id.value(), std::move(lease)).second);
}

Lease& LeaseHolder::at(LeaseId id) {
  const auto found = leases_.find(id.value());
  KVKEEP_CHECK(found != leases_.end());
  return found->second;
}

Lease LeaseHolder::Take(LeaseId id) {
  Lease lease = std::move(at(id));
  leases_.erase(id.value());
  leased_bytes_.Give(lease.bytes);
  if (lease.client_request_id != 0) KVKEEP_CHECK(by_request_.erase(lease.client_request_id) == 1);
  return lease;
}

void LeaseHolder::LimitKeys(LeaseId id, uint32_t keys) {
  Lease& lease = at(id);
  lease.keys = std::min(lease.keys, keys);
}

Lease::Entry LeaseHolder::TakeLast(LeaseId id, uint64_t bytes) {
  Lease& lease = at(id);
  KVKEEP_CHECK(!lease.entries.empty());
  KVKEEP_CHECK(lease.bytes >= bytes);
  const Lease::Entry entry = lease.entries.back();
  lease.entries.pop_back();
  lease.bytes -= bytes;
  leased_bytes_.Give(bytes);
  return entry;
}

G2Pool& LeaseBook::pool(TenantId tenant) const {
  KVKEEP_CHECK(tenant.value() < pools_.size());
  return *pools_[tenant.value()];
}

void LeaseBook::Open(const SessionToken& session, TenantId tenant) {
  KVKEEP_CHECK(holders_.emplace(session, std::make_shared<LeaseHolder>(tenant)).second);
}

std::shared_ptr<LeaseHolder> LeaseBook::Close(const SessionToken& session, bool revoked) {
  const auto found = holders_.find(session);
  KVKEEP_CHECK(found != holders_.end());
  std::shared_ptr<LeaseHolder> ended = std::move(found->second);
  holders_.erase(found);
  counters_.leases_revoked += revoked ? ended->leases().size() : 0;
  return ended;
}

const std::shared_ptr<LeaseHolder>& LeaseBook::of(const SessionToken& session) const {
  const auto found = holders_.find(session);
  KVKEEP_CHECK(found != holders_.end());
  return found->second;
}

const Lease* LeaseBook::Find(const SessionToken& session, LeaseId id) const {
  const auto found = holders_.find(session);
  return found == holders_.end() ? nullptr : found->second->Find(id);
}

absl::Status LeaseBook::CheckRoom(const LeaseHolder& holder) const {
  if (holder.leases().size() < most_leases_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("leases: this session holds ", most_leases_, ", the most allowed"));
}

bool LeaseBook::MayHold(const LeaseHolder& holder, ChunkSlot slot) const {
  const Chunk& chunk = table_.at(slot);
  const G2Pool& owner = pool(chunk.tenant);
  const G2Pool& own = pool(holder.tenant);
  // A chunk that is pinned already takes no more of the limit.
  if (!owner.MayLease(chunk.pins == 0 ? chunk.blocks() : 0)) return false;
  const bool lent = chunk.tenant != holder.tenant;
  return !lent || (owner.MayLend(chunk.blocks()) && own.MayLease(chunk.blocks()));
}

void LeaseBook::Hold(LeaseHolder& holder, ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.tenant == holder.tenant) return;
  pool(chunk.tenant).lent_blocks.Take(chunk.blocks());
  pool(holder.tenant).borrowed_blocks.Take(chunk.blocks());
}

void LeaseBook::LetGo(LeaseHolder& holder, ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.tenant == holder.tenant) return;
  pool(chunk.tenant).lent_blocks.Give(chunk.blocks());
  pool(holder.tenant).borrowed_blocks.Give(chunk.blocks());
}

LeaseId LeaseBook::File(LeaseHolder& holder, Lease lease) {
  const LeaseId id(next_++);
  holder.File(id, std::move(lease));
  ++counters_.leases_granted;
  return id;
}

struct LeaseBook::Held {
  std::vector<uint64_t> lent, borrowed;  // by TenantId
  std::vector<uint64_t> pins;            // by slot
};

void LeaseBook::CheckHolder(const LeaseHolder& holder, Held& held) const {
  uint64_t bytes = 0;
  for (const auto& [id, lease] : holder.leases()) {
    KVKEEP_CHECK(id < next_);
    uint64_t of_lease = 0;
    for (const Lease::Entry& entry : lease.entries) {
      const Chunk& chunk = table_.at(entry.slot);
      of_lease += chunk.blocks() * kBlockBytes;
      ++held.pins[entry.slot.value()];
      if (chunk.tenant == holder.tenant) continue;
      held.lent[chunk.tenant.value()] += chunk.blocks();
      held.borrowed[holder.tenant.value()] += chunk.blocks();
    }
    KVKEEP_CHECK(lease.bytes == of_lease);
    bytes += of_lease;
    if (lease.client_request_id != 0) {
      KVKEEP_CHECK(holder.FindRequest(lease.client_request_id) == LeaseId(id));
    }
  }
  KVKEEP_CHECK(holder.leased_bytes() == bytes);
}

void LeaseBook::CheckInvariants() const {
  const std::vector<uint64_t> none(pools_.size());
  Held held{none, none, std::vector<uint64_t>(table_.slot_end())};
  for (const auto& [session, holder] : holders_) CheckHolder(*holder, held);
  for (size_t t = 0; t < pools_.size(); ++t) {
    KVKEEP_CHECK(pools_[t]->lent_blocks >= held.lent[t]);  // more if some are read
    KVKEEP_CHECK(pools_[t]->borrowed_blocks >= held.borrowed[t]);
  }
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    KVKEEP_CHECK(table_.at(ChunkSlot(i)).pins >= held.pins[i]);
  }
}

}  // namespace kvkeep::store_internal
