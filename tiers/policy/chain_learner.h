// ChainLearner: the further interface of an eviction policy that learns from whole chains
// ("reuse").
//
// Its owner tells it each request twice: by EvictionPolicy::OnRequest, in slices, and then whole
// here. It knows chunks by their fingerprints only, so any other call may come in between. Not
// thread-safe.
#pragma once

#include <absl/strings/string_view.h>

#include <memory>
#include <span>
#include <string>

#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class ChainLearner {
 public:
  // A chain that is being learned from, step by step. There may be several, and it may be dropped
  // at any step. REQUIRES: the learner outlives it.
  class Play {
   public:
    virtual ~Play() = default;
    // Does about the work of `links` links, however long the chain is. Returns whether there is
    // more to do.
    virtual bool GoOn(size_t links) = 0;
  };
  static constexpr size_t kWhole = UINT32_MAX;  // links: to the end
  // A chain may be told in pieces of at least so many links, each of which counts as a chain.
  static constexpr size_t kLongestChain = 512;

  virtual ~ChainLearner() = default;
  // Returns a play, not begun yet, of the whole chain of one part of a request, head first. Slots
  // are ignored.
  virtual std::unique_ptr<Play> Learn(std::span<const EvictionPolicy::ChainLink> chain,
                                      MonotonicTime now) = 0;
  // Returns the learned state, for Load in another process. Empty: nothing worth keeping. Load
  // ignores the state of another version.
  virtual std::string Save() const = 0;
  virtual void Load(absl::string_view saved) = 0;
};

// Returns `policy` as a ChainLearner, or null if it does not learn from chains.
ChainLearner* LearnerIn(EvictionPolicy& policy);

// Tells `policy` a request whose whole chain is at hand, and has it learn from the chain.
void TellRequest(EvictionPolicy& policy, std::span<const EvictionPolicy::ChainLink> chain,
                 MonotonicTime now);

}  // namespace kvkeep
