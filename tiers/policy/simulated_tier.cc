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
    demoted_.erase(id);
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
  const ChunkSlot victim = Victim();
  policy_->OnErase(victim, EvictionPolicy::EraseReason::kEvicted);
  const uint64_t gone = ids_[victim.value()];
  KVKEEP_CHECK(slots_.erase(gone) == 1);
  demoted_.erase(gone);
  free_slots_.push_back(victim);
  KVKEEP_CHECK(slots_.size() <= capacity_ && policy_->size() == slots_.size());
  return gone;
}

ChunkSlot SimulatedTier::Victim() {
  while (!demotions_.empty()) {
    const auto [id, number] = demotions_.front();
    demotions_.pop_front();
    const auto demoted = demoted_.find(id);
    if (demoted != demoted_.end() && demoted->second == number) return Find(id);
  }
  while (true) {
    const std::optional<ChunkSlot> victim = policy_->Victim();
    KVKEEP_CHECK(victim.has_value());  // not all are retained
    if (!IsRetained(ids_[victim->value()])) return *victim;
    policy_->Park(*victim);
  }
}

void SimulatedTier::Retain(uint64_t id) {
  KVKEEP_CHECK(Contains(id));
  ++retained_[id];
  demoted_.erase(id);
  KVKEEP_CHECK(retained_.size() < capacity_);
}

void SimulatedTier::Release(uint64_t id) {
  const auto retained = retained_.find(id);
  KVKEEP_CHECK(retained != retained_.end());
  if (--retained->second > 0) return;
  retained_.erase(retained);
  policy_->Unpark(Find(id));
}

void SimulatedTier::Demote(uint64_t id) {
  if (!Contains(id) || IsRetained(id)) return;
  demoted_[id] = ++last_demotion_;
  demotions_.emplace_back(id, last_demotion_);
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
