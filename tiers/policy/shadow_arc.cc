#include "tiers/policy/shadow_arc.h"

namespace kvkeep {

ShadowArc::ShadowArc(uint32_t max_chunks, ShadowArc* shares_memory_with)
    : table_(shares_memory_with != nullptr ? shares_memory_with->table_
                                           : std::make_shared<FingerprintTable>(max_chunks)),
      policy_({.max_chunks = max_chunks,
               .shares_memory_with =
                   shares_memory_with != nullptr ? &shares_memory_with->policy_ : nullptr}) {}

ChunkSlot ShadowArc::Find(Key chunk) const {
  const uint32_t number = table_->Find(chunk);
  return number == kNone ? kNoSlot : ChunkSlot(number);
}

ChunkSlot ShadowArc::Insert(Key chunk, ChunkSlot parent, MonotonicTime now) {
  const uint32_t number = table_->Insert(chunk);
  if (number == kNone) return kNoSlot;
  const ChunkSlot slot(number);
  policy_.OnInsert({.slot = slot, .fingerprint = Fingerprint(chunk.bits), .parent = parent}, now);
  // One more than it brings: so a capacity that has shrunk is reached in the end.
  for (int i = 0; i < 2 && policy_.size() > capacity_; ++i) {
    const std::optional<Key> victim = Victim();
    Drop(*victim, true);
    if (victim->bits == chunk.bits) return kNoSlot;
    gone_.push_back(*victim);
  }
  return slot;
}

uint32_t ShadowArc::Request(std::span<const Key> chain, MonotonicTime now) {
  table_->Prefetch(chain);
  links_.clear();
  uint32_t leading = 0;
  for (const Key& chunk : chain) {
    const ChunkSlot slot = Find(chunk);
    if (slot != kNoSlot && leading == links_.size()) ++leading;
    links_.push_back({.slot = slot, .fingerprint = Fingerprint(chunk.bits)});
  }
  policy_.OnRequest(links_, now);
  ChunkSlot parent = kNoSlot;
  for (size_t i = 0; i < chain.size(); ++i) {
    ChunkSlot slot = links_[i].slot;
    // Something has made room for the chain's head: this one may be gone, or have come.
    if (slot == kNoSlot || !gone_.empty()) slot = Find(chain[i]);
    if (slot == kNoSlot) slot = Insert(chain[i], parent, now);
    if (slot == kNoSlot) break;
    parent = slot;
  }
  return leading;
}

void ShadowArc::Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) {
  if (!Holds(chunk)) Insert(chunk, parent.has_value() ? Find(*parent) : kNoSlot, now);
}

std::optional<ShadowTier::Key> ShadowArc::Victim() {
  const std::optional<ChunkSlot> slot = policy_.Victim();
  if (!slot.has_value()) return std::nullopt;
  return table_->KeyOf(slot->value());
}

void ShadowArc::Drop(Key chunk, bool evicted) {
  const ChunkSlot slot = Find(chunk);
  if (slot == kNoSlot) return;
  policy_.OnErase(slot, evicted ? EvictionPolicy::EraseReason::kEvicted
                                : EvictionPolicy::EraseReason::kRemoved);
  table_->Erase(slot.value());
}

std::span<std::byte> ShadowArc::MemoryDue() {
  const auto due = policy_.MemoryDue();
  return due.empty() ? table_->MemoryDue() : due;
}

}  // namespace kvkeep
