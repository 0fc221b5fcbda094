// Learning: has eviction policies learn from the chains of lookups, without the store's lock.
//
// A lookup tells the learners of its tenant, in G2 and in G3 (chain_learner.h), about its chains,
// which costs a copy. Once some have gathered, and at each Tick, one task for each tier plays them
// on the background executor, some links at a time. It takes the lock only to have the policies
// follow the learners' judgements. A chain is skipped and counted when too many wait, or when the
// tenant's chains since the last tick have too many links. So lookups of one tenant have a sixth of
// a CPU spent on learning at most, for each tier.
//
// It does nothing where no policy learns. Owns the state of each tier's task; each policy owns
// its learner.
//
// The caller of a public method holds the store's lock, except for is_quiet(). A task plays under
// the learner's own lock, without the store's. It takes the store's lock for Follow.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/learner_turns.h"
#include "tiers/store/lookup_state.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Learning {
 public:
  // All are borrowed. `executor`: runs work that nobody waits for.
  Learning(Executor* executor, Chunks* chunks, const DeviceTiers* tiers);

  // Tells the tenant's learners one chain for each part of the call, as a chunk and its parent are
  // of the same part. REQUIRES: all chunks of the call were looked up. May yield.
  void Tell(Section& section, TenantId tenant, LookupState& lookup) STORE_LOCKED;
  // Chunks come and go without lookups, too, and learners note it.
  void AfterPut() STORE_LOCKED;
  void Tick() STORE_LOCKED;
  // Returns whether nothing waits to be played or followed.
  bool at_rest() const STORE_LOCKED;
  // The store is about to stop: nothing more is played. Once is_quiet() no task is left that knows
  // this object; that needs no lock.
  void Stop() STORE_LOCKED { stopped_ = true; }
  bool is_quiet() const { return tasks_ == 0; }
  // Returns how many chains, comings and goings were skipped.
  uint64_t skipped() const STORE_LOCKED;

 private:
  // A tier's learners, by TenantId, and its task, which is the only one that plays them.
  struct Tier {
    LearnerTurns learners;
    std::vector<uint64_t> told STORE_GUARDED;  // links since the last tick, by TenantId
    std::atomic<bool> running{false};
  };
  static constexpr size_t kG2 = 0, kG3 = 1, kTiers = 2;

  static void Add(Tier& tier, ChainLearner* learner) STORE_LOCKED;
  void TellOne(Section& section, ChainLearner& learner, LookupState& lookup,
               uint64_t& told) STORE_LOCKED;
  void StartIfEnough(Tier& tier, const ChainLearner& learner) STORE_LOCKED;
  void Start(Tier& tier) STORE_LOCKED;
  void Post(Tier& tier);
  void Run(Tier& tier);
  void Follow(Tier& tier);

  Executor* const executor_;
  Chunks& chunks_;
  std::array<Tier, kTiers> tiers_;
  uint64_t skipped_ STORE_GUARDED = 0;  // chains that the ticks' allowance had no room for
  std::atomic<bool> stopped_{false};
  std::atomic<int> tasks_{0};  // posted and not over
};

}  // namespace kvkeep::store_internal
