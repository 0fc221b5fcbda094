#include "tiers/policy/reuse_policy.h"

namespace kvkeep {
namespace {

ReusePolicy* AsReuse(EvictionPolicy* policy) { return static_cast<ReusePolicy*>(policy); }

}  // namespace

ReusePolicy::ReusePolicy(const PolicyOptions& options, Objective objective)
    : ListPolicy(options, 2, Keeps::kFingerprintsToo),
      learner_(options.learns_with != nullptr
                   ? AsReuse(options.learns_with)->learner_
                   : std::make_shared<ReuseLearner>(ReuseLearner::Options{
                         .max_chunks = options.max_chunks,
                         .toucher = toucher(),
                         .shares_memory_with = options.shares_memory_with == nullptr
                                                   ? nullptr
                                                   : AsReuse(options.shares_memory_with)->learner(),
                         .apart = options.learns_apart,
                         .objective = objective})),
      number_(learner_->AddHost(this)) {}

int ReusePolicy::ListOfTouched(ChunkSlot /*slot*/, Node& node) {
  return node.value == kToGiveUp ? kOrphans : kKept;
}

int ReusePolicy::ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) {
  node.value = kToKeep;
  std::optional<Fingerprint> parent;
  if (chunk.parent != kNoSlot) parent = FingerprintOf(chunk.parent);
  learner_->OnCame(number_, chunk, parent, now);
  return kKept;
}

void ReusePolicy::Erased(ChunkSlot slot, const Node& /*node*/, int /*from*/, EraseReason reason) {
  learner_->OnWent(slot, FingerprintOf(slot), reason);
}

void ReusePolicy::OnJudged(ChunkSlot slot, bool keep, ChunkSlot parent) {
  Node& node = At(slot);
  node.value = keep ? kToKeep : kToGiveUp;
  const int list = ListOf(node);
  if (keep && list == kOrphans) Move(slot, kKept);
  if (!keep && list == kKept) MoveBehind(slot, kOrphans, parent);
}

ChunkSlot ReusePolicy::Next() {
  if (Oldest(kOrphans) == kNoSlot) learner_->FollowNow();
  const ChunkSlot orphan = Oldest(kOrphans);
  if (orphan != kNoSlot) return orphan;
  const ChunkSlot oldest = Oldest(kKept);
  if (oldest == kNoSlot) return kNoSlot;
  return learner_->FirstToGo(number_, oldest, FingerprintOf(oldest),
                             [this](ChunkSlot slot) { return ListOf(At(slot)) == kKept; });
}

}  // namespace kvkeep
