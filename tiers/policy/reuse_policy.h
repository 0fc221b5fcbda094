// ReusePolicy: gives up the chunks that its ReuseLearner says are not worth their place.
//
// Two lists: the chunks that the learner has given up ("orphans"), which go first, and all others.
// A new chunk is with the others until it is judged. If there are no orphans, the first to go is
// the one that the learner would give up next; the oldest one where the learner has not heard of it
// or is busy.
//
// At most 300 bytes a chunk, with the learner's, where requests bring chains of dozens
// (policy_memory_test); where each brings one or two, up to 480, as each makes groups of its own in
// the shadow. 1 us a chunk of a request (kvkeep-policy-bench), nearly all of it in the learner.
#pragma once

#include <memory>
#include <vector>

#include "tiers/policy/list_policy.h"
#include "tiers/policy/reuse_learner.h"

namespace kvkeep {

class ReusePolicy final : public ListPolicy, private ReuseLearner::Host {
 public:
  explicit ReusePolicy(const PolicyOptions& options, Objective objective = Objective::kHits);

  ReuseLearner* learner() override { return learner_.get(); }

 private:
  static constexpr int kOrphans = 0, kKept = 1;          // lists
  static constexpr uint64_t kToKeep = 0, kToGiveUp = 1;  // Node::value

  int ListOfTouched(ChunkSlot slot, Node& node) override;
  int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) override;
  void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) override;
  ChunkSlot Next() override;
  std::vector<int> ListOrder() const override { return {kOrphans, kKept}; }
  void OnJudged(ChunkSlot slot, bool keep, ChunkSlot parent) override;

  const std::shared_ptr<ReuseLearner> learner_;
  const uint32_t number_;  // as the learner's host
};

}  // namespace kvkeep
