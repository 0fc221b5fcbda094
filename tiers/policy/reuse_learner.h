// ReuseLearner: learns when chunks come back, and judges which of them a tier should keep
// ("reuse", and "seconds", which counts what chunks are worth by chain_worth.h).
//
// Two shadow tiers of the tier's size, one under HazardModel, one under ARC, play every request.
// The leader is the one that would have had more chunks, or more worth, at the heads of chains
// lately. Chunks that the leader does not hold are to go: those it gave up, and newcomers that it
// would not have let in (bypass). So the tier is never much worse than under ARC.
//
// The shadows' capacity is the number of chunks here at the last eviction; before the first one, or
// while fewer are here, it is a little more than are here. Both play what requests ask for at once;
// a chunk that is put without ever having been asked for comes in when it is inserted. The chunks
// of several hosts (the devices of G3) are one tier; then the shadows are a little smaller, so that
// each host has some chunks to give up.
//
// Three locks, in this order: the owner's, which protects the policies; `mu_`, which protects the
// shadows and is held for some links at a time; `boxes_mu_`, for what goes in and out. Calls under
// the owner's lock never wait for `mu_`.
#pragma once

#include <absl/functional/function_ref.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/policy/chain_learner.h"
#include "tiers/policy/fingerprint_table.h"
#include "tiers/policy/shadow_arc.h"
#include "tiers/policy/shadow_hazard.h"

namespace kvkeep {

class ReuseLearner final : public ChainLearner {
 public:
  // The most that wait: events to be played, links of their chains, judgements to be followed.
  static constexpr size_t kMostTold = 1 << 16, kMostLinks = 1 << 17, kMostJudged = 1 << 15;

  // A policy, as its learner sees it.
  class Host {
   public:
    virtual ~Host() = default;
    // The tier should keep the chunk, or give it up. `parent`: the chunk before it in its chain, if
    // it is the host's and it matters; else kNoSlot.
    virtual void OnJudged(ChunkSlot slot, bool keep, ChunkSlot parent) = 0;
  };

  struct Options {
    uint32_t max_chunks = 0;
    MemoryToucher* toucher = nullptr;
    ReuseLearner* shares_memory_with = nullptr;  // as PolicyOptions has it; shares its lock, too
    bool apart = false;  // somebody calls Work soon after something was told
    Objective objective = Objective::kHits;
  };
  explicit ReuseLearner(const Options& options) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // ---- ChainLearner
  void Tell(std::span<const EvictionPolicy::ChainLink> chain, MonotonicTime now) override;
  bool Work(size_t links) override;
  size_t Follow(size_t most) override;
  bool idle() const override { return waiting_ == 0 && judged_count_ == 0; }
  bool judged() const override { return judged_count_ > 0; }
  uint64_t waiting() const override { return waiting_; }
  uint64_t skipped() const override { return skipped_; }
  std::string Save() const override;
  void Load(absl::string_view saved) override;

  // ---- for hosts, under the owner's lock
  // Returns the host's number. The host outlives every later call of Follow.
  uint32_t AddHost(Host* host);
  void OnCame(uint32_t host, const EvictionPolicy::NewChunk& chunk,
              std::optional<Fingerprint> parent, MonotonicTime now);
  void OnWent(ChunkSlot slot, Fingerprint chunk, EvictionPolicy::EraseReason reason);
  // Follows some judgements. Before that it plays comings and goings that wait, if nobody calls
  // Work for them and they can be played at once.
  void FollowNow();
  // Returns the host's chunk that the leader would give up first, of those that `may_go`. Returns
  // `oldest` if the leader does not hold that one, or cannot be asked at once.
  ChunkSlot FirstToGo(uint32_t host, ChunkSlot oldest, Fingerprint oldest_print,
                      absl::FunctionRef<bool(ChunkSlot)> may_go);

  // For tests.
  bool follows_arc() const;

 private:
  static constexpr uint32_t kNone = FingerprintTable::kNone;
  using Key = FingerprintTable::Key;
  using Steps = ShadowTier::Steps;

  // What is here: by the table's number. The owner's lock protects it.
  struct Here {
    ChunkSlot slot;
    uint32_t host;
  };
  struct Memory {
    Memory(uint32_t most, MemoryToucher* toucher);
    FingerprintTable table;
    GrowingMemory here_memory;
    Here* const here;
    Mutex mu;  // of the shadows
  };
  struct Event {
    enum class Kind : uint8_t { kChain, kCame, kEvicted, kRemoved };
    Kind kind = Kind::kChain;
    bool has_parent = false;
    uint32_t here = 0;  // chunks that are here then; not of a chain
    Key chunk, parent;  // not of a chain
    std::vector<Key> links;
    MonotonicTime now{0};
  };
  struct Judgement {
    Key chunk, parent;
    bool keep = false, has_parent = false;
  };
  struct Play {
    ShadowHazard::Playing hazard;
    ShadowArc::Playing arc;
  };

  Key KeyOf(Fingerprint fingerprint) const { return FingerprintTable::KeyOf(fingerprint, owner_); }
  // Returns what is here under the key, or null.
  const Here* Find(Key key) const;
  void Note(Event event);

  ShadowTier& leader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return arc_leads_ ? static_cast<ShadowTier&>(arc_) : hazard_;
  }
  // Returns the event that is next, or null.
  const Event* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GoOn(Steps& steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PlaySmall(const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ChooseLeader(double chunks, double arc_is_ahead) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Judges some more chunks that only one of the shadows holds, after a change of the leader.
  void Sweep(Steps& steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets how many chunks the shadows may hold, where so many are here.
  void SetCapacity(uint32_t here, bool evicted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Judges what came into the leader's shadow and left it.
  void JudgeChanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool apart_;
  const Objective objective_;
  const std::shared_ptr<Memory> memory_;
  const uint32_t owner_;
  Mutex& mu_;  // memory_->mu

  // ---- the owner's lock protects these
  std::vector<Host*> hosts_;
  uint32_t here_count_ = 0;
  std::vector<Judgement> following_;
  size_t followed_ = 0;  // of following_

  // ---- the shadows
  ShadowHazard hazard_ ABSL_GUARDED_BY(mu_);
  ShadowArc arc_ ABSL_GUARDED_BY(mu_);
  uint32_t capacity_ ABSL_GUARDED_BY(mu_) = 0;  // at the last eviction; 0: there was none
  double arc_lead_ ABSL_GUARDED_BY(mu_) = 0;    // worth of hits that ARC had more lately
  bool arc_leads_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t swept_ ABSL_GUARDED_BY(mu_) = 0, sweep_end_ ABSL_GUARDED_BY(mu_) = 0;  // 0: no sweep
  std::deque<Event> playing_ ABSL_GUARDED_BY(mu_);  // taken from told_
  std::optional<Play> play_ ABSL_GUARDED_BY(mu_);   // of the first of them, a chain
  std::vector<Judgement> new_judged_ ABSL_GUARDED_BY(mu_);

  // ---- what goes in and out; in containers that never move nor free all they hold at once
  Mutex boxes_mu_ ABSL_ACQUIRED_AFTER(mu_);
  std::deque<Event> told_ ABSL_GUARDED_BY(boxes_mu_);
  std::deque<std::vector<Judgement>> judged_ ABSL_GUARDED_BY(boxes_mu_);
  std::atomic<uint64_t> waiting_{0};  // events not played, and one for a sweep
  std::atomic<uint64_t> links_waiting_{0};
  std::atomic<uint64_t> judged_count_{0};  // judgements not followed
  std::atomic<uint64_t> skipped_{0};
  std::atomic<bool> hosts_many_{false};  // there are several hosts
};

}  // namespace kvkeep
