#include "tiers/policy/chain_learner.h"

namespace kvkeep {

ChainLearner* LearnerIn(EvictionPolicy& policy) { return dynamic_cast<ChainLearner*>(&policy); }

void TellRequest(EvictionPolicy& policy, std::span<const EvictionPolicy::ChainLink> chain,
                 MonotonicTime now) {
  policy.OnRequest(chain, now, EvictionPolicy::Slice::kFirst);
  ChainLearner* const learner = LearnerIn(policy);
  if (learner != nullptr && !chain.empty()) learner->Learn(chain, now)->GoOn(ChainLearner::kWhole);
}

}  // namespace kvkeep
