// ReusePolicy: learns when chunks come back, and keeps those that are worth the most hits for the
// time that they have to stay. It is never much worse than ARC, which it follows where ARC does
// better.
//
// Two shadow tiers of the same size, one under HazardModel, one under ARC, play every request. The
// leader is the one that would have had more chunks at the heads of chains lately. A chunk that the
// leader does not hold is the first to go: those that it has given up, and newcomers that it would
// never have let in (bypass). Parking is of the chunks that are really here (ListPolicy).
//
// The shadows' capacity is the number of chunks here when one was evicted. Both play what requests
// ask for at once; a chunk that is put without ever having been asked for comes in when it is
// inserted.
//
// At most 300 bytes a chunk where requests bring chains of dozens (policy_memory_test); where each
// brings one or two, up to 480, as each makes groups of its own in the shadow. 1 us a chunk of a
// request (kvkeep-policy-bench), a slice at a time in what Learn returns.
#pragma once

#include <memory>
#include <vector>

#include "tiers/policy/chain_learner.h"
#include "tiers/policy/list_policy.h"
#include "tiers/policy/shadow_arc.h"
#include "tiers/policy/shadow_hazard.h"

namespace kvkeep {

class ReusePolicy final : public ListPolicy, public ChainLearner {
 public:
  explicit ReusePolicy(const PolicyOptions& options);

  std::unique_ptr<Play> Learn(std::span<const ChainLink> chain, MonotonicTime now) override;
  std::string Save() const override { return hazard_.SaveModel(); }
  void Load(absl::string_view saved) override { hazard_.LoadModel(saved); }
  // For tests.
  bool follows_arc() const { return arc_leads_; }

 private:
  static constexpr int kOrphans = 0, kHeld = 1;  // lists: not held by the leader, and held
  static constexpr uint32_t kNone = FingerprintTable::kNone;
  using Key = FingerprintTable::Key;
  struct Memory {
    Memory(uint32_t most, MemoryToucher* toucher)
        : table(most, toucher),
          slot_memory(uint64_t{most} * sizeof(ChunkSlot), toucher),
          slots(reinterpret_cast<ChunkSlot*>(slot_memory.data())) {}
    FingerprintTable table;  // of the chunks that are here
    GrowingMemory slot_memory;
    ChunkSlot* const slots;  // by the table's number
  };

  class ShadowPlay;

  int ListOfTouched(ChunkSlot slot, Node& node) override;
  int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) override;
  void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) override;
  ChunkSlot Next() override;
  std::vector<int> ListOrder() const override { return {kOrphans, kHeld}; }

  Key KeyOf(Fingerprint fingerprint) const { return FingerprintTable::KeyOf(fingerprint, owner_); }
  ShadowTier& leader() { return arc_leads_ ? static_cast<ShadowTier&>(arc_) : hazard_; }
  bool LeaderHolds(ChunkSlot slot) { return leader().Holds(KeyOf(FingerprintOf(slot))); }
  ChunkSlot Find(Key key) const;
  // Makes orphans of the chunks that made room in the leader's shadow.
  void Follow();
  void ChooseLeader(double chunks, double arc_is_ahead);
  // Moves some more chunks to the list where they belong after a change of the leader.
  void Sweep(size_t chunks);

  const std::shared_ptr<Memory> memory_;
  const uint32_t owner_;
  ShadowHazard hazard_;
  ShadowArc arc_;
  uint32_t capacity_ = 0;  // 0: nothing was ever evicted
  double arc_lead_ = 0;    // hits that ARC had more lately
  bool arc_leads_ = false;
  size_t to_sweep_ = 0;
};

}  // namespace kvkeep
