#include "tiers/policy/reuse_policy.h"

#include <algorithm>

namespace kvkeep {
namespace {

// "Lately", in requested chunks, and the lead that ARC needs to take over, as a part of that.
constexpr double kLeastHorizon = 20'000;
constexpr double kHorizonPerChunk = 20;
constexpr double kLeadToChange = 0.002;

ReusePolicy* Shared(const PolicyOptions& options) {
  return static_cast<ReusePolicy*>(options.shares_memory_with);
}

}  // namespace

ReusePolicy::ReusePolicy(const PolicyOptions& options)
    : ListPolicy(options, 2, Keeps::kFingerprintsToo),
      memory_(Shared(options) == nullptr ? std::make_shared<Memory>(options.max_chunks, toucher())
                                         : Shared(options)->memory_),
      owner_(memory_->table.NewOwner()),
      hazard_(options.max_chunks, toucher(),
              Shared(options) == nullptr ? nullptr : &Shared(options)->hazard_),
      arc_(options.max_chunks, toucher(),
           Shared(options) == nullptr ? nullptr : &Shared(options)->arc_) {}

ChunkSlot ReusePolicy::Find(Key key) const {
  const uint32_t number = memory_->table.Find(key);
  return number == kNone ? kNoSlot : memory_->slots[number];
}

void ReusePolicy::Follow() {
  (arc_leads_ ? static_cast<ShadowTier&>(hazard_) : arc_).TakeGone();
  for (const Key key : leader().TakeGone()) {
    const ChunkSlot slot = Find(key);
    if (slot != kNoSlot && ListOf(At(slot)) == kHeld) Move(slot, kOrphans);
  }
}

void ReusePolicy::ChooseLeader(double chunks, double arc_is_ahead) {
  const double horizon = std::max(kLeastHorizon, kHorizonPerChunk * capacity_);
  arc_lead_ = arc_lead_ * std::max(0.0, 1 - chunks / horizon) + arc_is_ahead;
  const bool arc_leads = arc_leads_ ? arc_lead_ > 0 : arc_lead_ > kLeadToChange * horizon;
  if (arc_leads == arc_leads_) return;
  arc_leads_ = arc_leads;
  to_sweep_ = size();
}

void ReusePolicy::Sweep(size_t chunks) {
  for (; chunks > 0 && to_sweep_ > 0; --chunks, --to_sweep_) {
    const ChunkSlot slot = Oldest(kHeld);
    if (slot == kNoSlot)
      to_sweep_ = 1;
    else
      Move(slot, LeaderHolds(slot) ? kHeld : kOrphans);
  }
}

// Plays a chain in both shadows, one after the other, as they are independent. Then decides which
// leads.
class ReusePolicy::ShadowPlay final : public Play {
 public:
  ShadowPlay(ReusePolicy* policy, std::span<const ChainLink> chain, MonotonicTime now)
      : policy_(*policy) {
    keys_.reserve(chain.size());
    for (const ChainLink& link : chain) keys_.push_back(policy_.KeyOf(link.fingerprint));
    hazard_ = {.chain = keys_, .now = now};
    arc_ = {.chain = keys_, .now = now};
    to_sweep_ = kSweepPerLink * keys_.size();
  }

  bool GoOn(size_t links) override {
    constexpr Steps kStepsPerLink =
        ShadowHazard::kStepsPerLink + ShadowArc::kStepsPerLink + kSweepPerLink;
    Steps steps = static_cast<Steps>(links) * kStepsPerLink;
    const bool playing = policy_.hazard_.Play(hazard_, steps) || policy_.arc_.Play(arc_, steps);
    policy_.Follow();
    if (playing) return true;
    if (!std::exchange(judged_, true)) {
      policy_.ChooseLeader(static_cast<double>(keys_.size()),
                           static_cast<double>(arc_.leading) - hazard_.leading);
    }
    const size_t swept = std::min(to_sweep_, static_cast<size_t>(std::max<Steps>(0, steps)));
    policy_.Sweep(swept);
    to_sweep_ -= swept;
    return to_sweep_ > 0 && policy_.to_sweep_ > 0;
  }

 private:
  using Steps = ShadowTier::Steps;
  static constexpr Steps kSweepPerLink = 2;

  ReusePolicy& policy_;
  std::vector<Key> keys_;
  ShadowHazard::Playing hazard_;
  ShadowArc::Playing arc_;
  bool judged_ = false;
  size_t to_sweep_ = 0;
};

std::unique_ptr<ChainLearner::Play> ReusePolicy::Learn(std::span<const ChainLink> chain,
                                                       MonotonicTime now) {
  return std::make_unique<ShadowPlay>(this, chain, now);
}

int ReusePolicy::ListOfTouched(ChunkSlot slot, Node& /*node*/) {
  return LeaderHolds(slot) ? kHeld : kOrphans;
}

int ReusePolicy::ListOfNew(Node& /*node*/, const NewChunk& chunk, MonotonicTime now) {
  const Key key = KeyOf(chunk.fingerprint);
  uint32_t number = memory_->table.Find(key);
  if (number == kNone) number = memory_->table.Insert(key);
  memory_->slot_memory.Use(uint64_t{memory_->table.used()} * sizeof(ChunkSlot));
  if (number != kNone) memory_->slots[number] = chunk.slot;
  if (!hazard_.Knows(key)) {
    std::optional<Key> parent;
    if (chunk.parent != kNoSlot) parent = KeyOf(FingerprintOf(chunk.parent));
    hazard_.Bring(key, parent, now);
    arc_.Bring(key, parent, now);
    Follow();
  }
  return LeaderHolds(chunk.slot) ? kHeld : kOrphans;
}

void ReusePolicy::Erased(ChunkSlot slot, const Node& /*node*/, int /*from*/, EraseReason reason) {
  const Key key = KeyOf(FingerprintOf(slot));
  const uint32_t number = memory_->table.Find(key);
  // Otherwise the number belongs to another chunk with the same fingerprint.
  if (number != kNone && memory_->slots[number] == slot) memory_->table.Erase(number);
  if (reason == EraseReason::kRemoved) {
    hazard_.Drop(key, false);
    arc_.Drop(key, false);
    return;
  }
  capacity_ = static_cast<uint32_t>(size());
  hazard_.SetCapacity(capacity_);
  arc_.SetCapacity(capacity_);
  leader().Drop(key, true);
}

ChunkSlot ReusePolicy::Next() {
  for (int steps = 0; steps < kVictimSteps; ++steps) {
    const ChunkSlot orphan = Oldest(kOrphans);
    if (orphan != kNoSlot) {
      if (!LeaderHolds(orphan)) return orphan;
      Move(orphan, kHeld);  // since the leader changed
      continue;
    }
    const std::optional<Key> victim = leader().Victim();
    if (!victim.has_value()) break;
    const ChunkSlot slot = Find(*victim);
    if (slot != kNoSlot && ListOf(At(slot)) == kHeld) return slot;
    leader().Drop(*victim, true);  // not here, or aside
  }
  const ChunkSlot orphan = Oldest(kOrphans);
  return orphan != kNoSlot ? orphan : Oldest(kHeld);
}

}  // namespace kvkeep
