// ChainLearner: what learns from whole chains which chunks a tier should keep, beside the policies
// that hold their order ("reuse", "seconds").
//
// One learner serves all policies that divide one tenant's chunks of a tier among them
// (PolicyOptions::learns_with): G2's one, or those of all devices of G3. It learns by three steps:
//
//   Tell    notes a chain. Costs a copy of its fingerprints.
//   Work    plays what was told, some time later, and judges chunks.
//   Follow  tells the policies of these judgements.
//
// Threads: Follow is called under the lock that protects the policies, everything else without it
// or with it. Tell and Follow take tens of nanoseconds a chunk and wait for no play.
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>
#include <span>
#include <string>

#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class ChainLearner {
 public:
  static constexpr size_t kWhole = UINT32_MAX;  // links: to the end
  // A longer chain is told in pieces of at most so many links, each of which counts as a chain.
  static constexpr size_t kLongestChain = 512;

  virtual ~ChainLearner() = default;

  // Notes the chain of one part of a request, head first. Slots are ignored. A chain that comes
  // while too much waits to be played is skipped and counted.
  virtual void Tell(std::span<const EvictionPolicy::ChainLink> chain, MonotonicTime now) = 0;
  // Plays what was told, about `links` links of it. Returns whether there is more to play. Once
  // many judgements wait for Follow it does nothing.
  virtual bool Work(size_t links) = 0;
  // Tells the policies of at most `most` judgements. Returns how many it told of; fewer than
  // `most`: none is left.
  virtual size_t Follow(size_t most) = 0;
  // Returns whether there is nothing to play, and nothing to follow; whether there is something to
  // follow; how many chains, comings and goings wait to be played.
  virtual bool idle() const = 0;
  virtual bool judged() const = 0;
  virtual uint64_t waiting() const = 0;
  // Returns how many chains, comings and goings were skipped.
  virtual uint64_t skipped() const = 0;

  // Returns the learned state, for Load in another process. Empty: nothing worth keeping. Load
  // ignores the state of another version.
  virtual std::string Save() const = 0;
  virtual void Load(absl::string_view saved) = 0;
};

// Plays all that `learner` was told, and has its policies follow. For owners whose policies have no
// lock.
void CatchUp(ChainLearner& learner);

// Tells `policy` a request whose whole chain is at hand, and has its learner, if it has one, learn
// from the chain at once. For owners whose policies have no lock.
void TellRequest(EvictionPolicy& policy, std::span<const EvictionPolicy::ChainLink> chain,
                 MonotonicTime now);

}  // namespace kvkeep
