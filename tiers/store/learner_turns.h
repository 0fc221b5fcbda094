// LearnerTurns: has the learners of one tier play in turns.
//
// A turn is a call of ChainLearner::Work, for a given number of links. The next turn is that of the
// next learner that has something to play. So a tenant that asks for more than can be played does
// not keep others from learning.
//
// Owns no learner. One thread at a time may call Play; any thread may call the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tiers/policy/chain_learner.h"

namespace kvkeep::store_internal {

class LearnerTurns {
 public:
  // Call it before all other methods.
  void Add(ChainLearner* learner) { learners_.push_back(learner); }

  const std::vector<ChainLearner*>& all() const { return learners_; }
  // Returns whether something waits to be played or followed.
  bool anyone_waits() const {
    return std::any_of(learners_.begin(), learners_.end(),
                       [](const ChainLearner* learner) { return !learner->idle(); });
  }
  // Gives `turns` turns of `links` links each; fewer, if nothing is left to play.
  void Play(size_t turns, size_t links) {
    size_t passed = 0;  // learners in a row that had nothing to play
    while (turns > 0 && passed < learners_.size()) {
      ChainLearner& learner = *learners_[next_];
      next_ = (next_ + 1) % learners_.size();
      if (learner.waiting() == 0) {
        ++passed;
        continue;
      }
      learner.Work(links);
      passed = 0;
      --turns;
    }
  }

 private:
  std::vector<ChainLearner*> learners_;
  size_t next_ = 0;
};

}  // namespace kvkeep::store_internal
