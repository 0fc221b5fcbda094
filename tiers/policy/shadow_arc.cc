#include "tiers/policy/shadow_arc.h"

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr ShadowTier::Steps kTouchSteps = 3, kInsertSteps = 5;

}  // namespace

ShadowArc::ShadowArc(uint32_t max_chunks, ShadowArc* shares_memory_with)
    : memory_(shares_memory_with != nullptr ? shares_memory_with->memory_
                                            : std::make_shared<Memory>(max_chunks)),
      policy_({.max_chunks = max_chunks,
               .slots = memory_->slots,
               .shares_memory_with =
                   shares_memory_with != nullptr ? &shares_memory_with->policy_ : nullptr}) {}

ChunkSlot ShadowArc::Find(Key chunk) const {
  const uint32_t number = memory_->table.Find(chunk);
  return number == kNone ? kNoSlot : ChunkSlot(number);
}

ChunkSlot ShadowArc::Insert(Key chunk, ChunkSlot parent, MonotonicTime now) {
  const uint32_t number = memory_->table.Insert(chunk);
  if (number == kNone) return kNoSlot;
  const ChunkSlot slot(number);
  KVKEEP_CHECK(number < memory_->slots->max_slots());
  memory_->slots->Use(memory_->table.used());
  policy_.OnInsert({.slot = slot, .fingerprint = Fingerprint(chunk.bits), .parent = parent}, now);
  // Evicts one chunk more than it brings, so that a capacity that has shrunk is reached in the end.
  for (int i = 0; i < 2 && policy_.size() > capacity_; ++i) {
    const std::optional<Key> victim = Victim();
    KVKEEP_CHECK(victim.has_value());
    Drop(*victim, true);
    if (victim->bits == chunk.bits) return kNoSlot;
    changes_.push_back({.chunk = *victim, .held = false});
  }
  changes_.push_back({.chunk = chunk, .held = true});
  return slot;
}

void ShadowArc::Touch(Playing& playing, Steps& steps) {
  const size_t end = playing.chain.size() - playing.touched;
  const size_t begin = end - InSlice(end, kTouchSteps, steps);
  const auto keys = playing.chain.subspan(begin, end - begin);
  memory_->table.Prefetch(keys);
  links_.clear();
  for (const Key& chunk : keys) {
    links_.push_back({.slot = Find(chunk), .fingerprint = Fingerprint(chunk.bits)});
  }
  for (size_t i = links_.size(); i-- > 0;) {
    if (links_[i].slot == kNoSlot) playing.leading = static_cast<uint32_t>(begin + i);
  }
  policy_.OnRequest(links_, playing.now, EvictionPolicy::Slice::kNext);
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
    policy_.OnRequest({}, playing.now, EvictionPolicy::Slice::kFirst);
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
  return memory_->table.KeyOf(slot->value());
}

void ShadowArc::Drop(Key chunk, bool evicted) {
  const ChunkSlot slot = Find(chunk);
  if (slot == kNoSlot) return;
  policy_.OnErase(slot, evicted ? EvictionPolicy::EraseReason::kEvicted
                                : EvictionPolicy::EraseReason::kRemoved);
  memory_->table.Erase(slot.value());
}

}  // namespace kvkeep
