#include "tiers/policy/shadow_arc.h"

namespace kvkeep {
namespace {

constexpr ShadowTier::Steps kTouchSteps = 3, kInsertSteps = 5;

}  // namespace

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

void ShadowArc::Touch(Playing& playing, Steps& steps) {
  const size_t end = playing.chain.size() - playing.touched;
  const size_t begin = end - InSlice(end, kTouchSteps, steps);
  const auto keys = playing.chain.subspan(begin, end - begin);
  table_->Prefetch(keys);
  links_.clear();
  for (const Key& chunk : keys) {
    links_.push_back({.slot = Find(chunk), .fingerprint = Fingerprint(chunk.bits)});
  }
  for (size_t i = links_.size(); i-- > 0;) {
    if (links_[i].slot == kNoSlot) playing.leading = static_cast<uint32_t>(begin + i);
  }
  policy_.OnRequestContinued(links_, playing.now);
  playing.touched += keys.size();
  steps -= static_cast<Steps>(kTouchSteps * keys.size());
}

void ShadowArc::BringAbsent(Playing& playing, Steps& steps) {
  const std::span<const Key> chain = playing.chain;
  ChunkSlot parent = playing.brought == 0 ? kNoSlot : Find(chain[playing.brought - 1]);
  for (; playing.brought < chain.size() && steps > 0; ++playing.brought) {
    const Key chunk = chain[playing.brought];
    ChunkSlot slot = Find(chunk);
    --steps;
    if (slot == kNoSlot) {
      slot = Insert(chunk, parent, playing.now);
      steps -= kInsertSteps;
    }
    if (slot == kNoSlot) playing.brought = chain.size() - 1;  // the last one of it
    parent = slot;
  }
}

bool ShadowArc::Play(Playing& playing, Steps& steps) {
  if (!std::exchange(playing.begun, true)) {
    playing.leading = static_cast<uint32_t>(playing.chain.size());
    policy_.OnRequest({}, playing.now);
  }
  while (playing.touched < playing.chain.size() && steps > 0) Touch(playing, steps);
  if (playing.touched == playing.chain.size()) BringAbsent(playing, steps);
  return playing.brought < playing.chain.size();
}

uint32_t ShadowArc::Request(std::span<const Key> chain, MonotonicTime now) {
  Playing playing{.chain = chain, .now = now};
  Steps steps = kToTheEnd;
  Play(playing, steps);
  return playing.leading;
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
