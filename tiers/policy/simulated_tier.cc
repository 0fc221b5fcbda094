#include "tiers/policy/simulated_tier.h"

#include "tiers/base/check.h"
#include "tiers/policy/chain_learner.h"

namespace kvkeep {

SimulatedTier::SimulatedTier(std::unique_ptr<EvictionPolicy> policy, uint32_t capacity)
    : policy_(std::move(policy)), capacity_(capacity) {
  KVKEEP_CHECK(policy_ != nullptr && policy_->size() == 0 && capacity > 0);
}

ChunkSlot SimulatedTier::Find(uint64_t id) const {
  const auto found = slots_.find(id);
  return found == slots_.end() ? kNoSlot : found->second;
}

void SimulatedTier::Tell(std::span<const uint64_t> ids, MonotonicTime now) {
  chain_.clear();
  for (const uint64_t id : ids) {
    chain_.push_back({.slot = Find(id), .fingerprint = Fingerprint(id)});
  }
  TellRequest(*policy_, chain_, now);
}

std::optional<uint64_t> SimulatedTier::Insert(uint64_t id, std::optional<uint64_t> parent,
                                              MonotonicTime now) {
  const ChunkSlot slot = TakeSlot(id);
  KVKEEP_CHECK(slots_.emplace(id, slot).second);
  policy_->OnInsert({.slot = slot,
                     .fingerprint = Fingerprint(id),
                     .parent = parent.has_value() ? Find(*parent) : kNoSlot,
                     .blocks = 1},
                    now);
  if (slots_.size() <= capacity_) return std::nullopt;
  const std::optional<ChunkSlot> victim = policy_->Victim();
  KVKEEP_CHECK(victim.has_value());  // nothing is ever parked here
  policy_->OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
  const uint64_t gone = ids_[victim->value()];
  KVKEEP_CHECK(slots_.erase(gone) == 1);
  free_slots_.push_back(*victim);
  KVKEEP_CHECK(slots_.size() <= capacity_ && policy_->size() == slots_.size());
  return gone;
}

ChunkSlot SimulatedTier::TakeSlot(uint64_t id) {
  if (free_slots_.empty()) {
    ids_.push_back(id);
    return ChunkSlot(static_cast<uint32_t>(ids_.size() - 1));
  }
  const ChunkSlot slot = free_slots_.back();
  free_slots_.pop_back();
  ids_[slot.value()] = id;
  return slot;
}

}  // namespace kvkeep
