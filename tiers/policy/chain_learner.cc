#include "tiers/policy/chain_learner.h"

namespace kvkeep {

void CatchUp(ChainLearner& learner) {
  for (bool more = true; more;) {
    more = learner.Work(ChainLearner::kWhole);
    learner.Follow(SIZE_MAX);
  }
}

void TellRequest(EvictionPolicy& policy, std::span<const EvictionPolicy::ChainLink> chain,
                 MonotonicTime now) {
  policy.OnRequest(chain, now, EvictionPolicy::Slice::kFirst);
  ChainLearner* const learner = policy.learner();
  if (learner == nullptr || chain.empty()) return;
  learner->Tell(chain, now);
  CatchUp(*learner);
}

}  // namespace kvkeep
