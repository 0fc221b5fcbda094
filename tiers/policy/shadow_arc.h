// ShadowArc: a shadow tier under ArcPolicy.
#pragma once

#include <memory>

#include "tiers/policy/arc_policy.h"
#include "tiers/policy/shadow_tier.h"

namespace kvkeep {

class ShadowArc final : public ShadowTier {
 public:
  // `shares_memory_with` as PolicyOptions has it.
  ShadowArc(uint32_t max_chunks, ShadowArc* shares_memory_with);

  // A request on its way. `leading` is known when it is over.
  struct Playing {
    std::span<const Key> chain;
    MonotonicTime now;
    uint32_t leading = 0;
    // Play's own: all links are touched, tail first, then those that are absent come, head first.
    size_t touched = 0, brought = 0;
    bool begun = false;
  };
  static constexpr Steps kStepsPerLink = 4;  // what Play takes for each link of a chain, about

  // Goes on with the play; returns whether there is more to do. The chain must live until it
  // returns false.
  bool Play(Playing& playing, Steps& steps);
  uint32_t Request(std::span<const Key> chain, MonotonicTime now) override;
  void Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) override;
  bool Holds(Key chunk) const override { return memory_->table.Find(chunk) != kNone; }
  bool Knows(Key chunk) const override { return Holds(chunk); }
  std::optional<Key> Victim() override;
  void Drop(Key chunk, bool evicted) override;

 private:
  static constexpr uint32_t kNone = FingerprintTable::kNone;
  ChunkSlot Find(Key chunk) const;
  // Returns the chunk's slot, or kNoSlot if it could not stay.
  ChunkSlot Insert(Key chunk, ChunkSlot parent, MonotonicTime now);
  void Touch(Playing& playing, Steps& steps);
  void BringAbsent(Playing& playing, Steps& steps);

  struct Memory {
    explicit Memory(uint32_t max_chunks)
        : table(max_chunks), slots(std::make_shared<SlotArrays>(max_chunks)) {}
    FingerprintTable table;  // its numbers are the policy's slots
    const std::shared_ptr<SlotArrays> slots;
  };

  const std::shared_ptr<Memory> memory_;
  ArcPolicy policy_;
  std::vector<EvictionPolicy::ChainLink> links_;  // of the slice
};

}  // namespace kvkeep
