#include "tiers/store/replaced.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

const Replaced* ReplacedRecords::Find(const ReplacedAt& at) const {
  const auto found = records_.find(at);
  return found == records_.end() ? nullptr : &found->second;
}

std::optional<ReplacedAt> ReplacedRecords::Next(const ChunkId& id, uint32_t device) const {
  if (device > UINT16_MAX) return std::nullopt;
  const auto next = records_.lower_bound({id, static_cast<uint16_t>(device)});
  if (next == records_.end() || next->first.id != id) return std::nullopt;
  return next->first;
}

std::optional<ReplacedAt> ReplacedRecords::AnyKept(uint16_t device,
                                                   std::optional<TenantId> owner) const {
  const auto first = kept_.lower_bound(Place{device, owner.value_or(TenantId(0)), ChunkId{}});
  if (first == kept_.end()) return std::nullopt;
  const auto& [on, of, id] = *first;
  if (on != device || (owner.has_value() && of != *owner)) return std::nullopt;
  return ReplacedAt{id, on};
}

void ReplacedRecords::Hold(const ReplacedAt& at, ChunkSlot holder) {
  KVKEEP_CHECK(holder != kNoSlot);
  KVKEEP_CHECK(records_.emplace(at, Replaced{.holder = holder, .extents = {}}).second);
}

void ReplacedRecords::Keep(const ReplacedAt& at, TenantId owner, ExtentList extents,
                           const KnownRecord& record) {
  Replaced& replaced = records_[at];
  KVKEEP_CHECK(replaced.extents.empty() && !extents.empty());
  replaced = {
      .holder = kNoSlot, .extents = std::move(extents), .record = record, .owner = owner};
  KVKEEP_CHECK(kept_.emplace(at.device, owner, at.id).second);
}

Replaced ReplacedRecords::Take(const ReplacedAt& at) {
  const auto found = records_.find(at);
  KVKEEP_CHECK(found != records_.end() && found->second.kept());
  Replaced replaced = std::move(found->second);
  records_.erase(found);
  KVKEEP_CHECK(kept_.erase(Place{at.device, replaced.owner, at.id}) == 1);
  return replaced;
}

void ReplacedRecords::Drop(const ReplacedAt& at) {
  const auto found = records_.find(at);
  KVKEEP_CHECK(found != records_.end() && !found->second.kept());
  records_.erase(found);
}

void ReplacedRecords::CheckInvariants() const {
  size_t kept = 0;
  for (const auto& [at, replaced] : records_) {
    KVKEEP_CHECK(replaced.kept() == !replaced.extents.empty());
    if (!replaced.kept()) continue;
    ++kept;
    KVKEEP_CHECK(kept_.contains(Place{at.device, replaced.owner, at.id}));
    KVKEEP_CHECK(replaced.blocks() == replaced.record.shape.blocks().value());
  }
  KVKEEP_CHECK(kept == kept_.size());
}

}  // namespace kvkeep::store_internal
