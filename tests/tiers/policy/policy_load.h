// PolicyLoad: a full tier under some policy and engines' requests, to measure CPU time and memory.
// Conversations grow by 64 chunks a turn, up to 512, and then make room for a new one. They have
// twice as many chunks as the tier, and speakers are random, so that caches help little. A request
// tells its whole chain, and its missing chunks come in.
//
// All memory of the load itself exists before its policy is made, so any growth of the process
// after that is the policy's. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/units.h"
#include "tiers/policy/chain_learner.h"

namespace kvkeep {

class PolicyLoad {
 public:
  static constexpr uint32_t kLongest = 512, kGrowth = 64;
  struct Cost {
    uint64_t requests = 0, told = 0, inserted = 0;  // links that requests told
    MonotonicTime telling{0}, inserting{0};         // CPU time; the latter with evictions
  };

  explicit PolicyLoad(uint32_t chunks)
      : chunks_(chunks),
        sessions_(2 * chunks / (kLongest / 2) + 1),
        slot_of_(RoundUp(kIdsPerChunk * chunks, kLongest) + kLongest, kNoSlot.value()),
        id_of_(chunks + 1) {
    for (Session& session : sessions_) session = NewSession();
    for (uint32_t i = 0; i <= chunks; ++i) free_.push_back(ChunkSlot(chunks - i));
    chain_.reserve(kLongest);
  }

  void Use(const std::string& name) {
    policy_ = MakeEvictionPolicy(name, {.max_chunks = chunks_ + 1});
    KVKEEP_CHECK(policy_ != nullptr);
  }
  // Plays until the tier was turned over some times, so that memories of evicted chunks are full,
  // too.
  Cost Fill() {
    Cost cost;
    while (cost.inserted < kTurnover * chunks_) Request(&cost);
    KVKEEP_CHECK(policy_->size() == chunks_);
    return cost;
  }
  // Plays this many more links, at most eight for each chunk of the tier.
  Cost Measure(uint64_t told) {
    KVKEEP_CHECK(told <= kMostTold * chunks_);
    Cost cost;
    while (cost.told < told) Request(&cost);
    return cost;
  }

 private:
  static constexpr uint64_t kTurnover = 8, kMostTold = 8;
  // 2 x 512 / 256 of the first conversations, and at most as many that come in.
  static constexpr uint64_t kIdsPerChunk = 4 + kTurnover + kMostTold;
  struct Session {
    uint32_t first_id = 0, length = 0;
  };

  Session NewSession() {
    const auto first = static_cast<uint32_t>(next_id_);
    next_id_ += kLongest;
    KVKEEP_CHECK(next_id_ <= slot_of_.size());
    return {.first_id = first};
  }
  static Fingerprint PrintOf(uint32_t id) { return Fingerprint((id + 1) * 0x9e3779b97f4a7c15); }

  void Request(Cost* cost) {
    Session& session = sessions_[random_.Below(sessions_.size())];
    if (session.length == kLongest) session = NewSession();
    session.length += kGrowth;
    chain_.clear();
    for (uint32_t i = 0; i < session.length; ++i) {
      const uint32_t id = session.first_id + i;
      chain_.push_back({.slot = ChunkSlot(slot_of_[id]), .fingerprint = PrintOf(id)});
    }
    now_ += std::chrono::milliseconds(50);
    const MonotonicTime began = ThreadCpuClock()->Now();
    TellRequest(*policy_, chain_, now_);
    const MonotonicTime told = ThreadCpuClock()->Now();
    const uint64_t inserted = InsertAbsent(session);
    cost->inserting += ThreadCpuClock()->Now() - told;
    cost->telling += told - began;
    cost->inserted += inserted;
    cost->told += chain_.size();
    ++cost->requests;
  }

  uint64_t InsertAbsent(const Session& session) {
    uint64_t inserted = 0;
    ChunkSlot parent = kNoSlot;
    for (uint32_t i = 0; i < session.length; ++i) {
      const uint32_t id = session.first_id + i;
      if (slot_of_[id] == kNoSlot.value()) {
        Insert(id, parent);
        ++inserted;
      }
      parent = ChunkSlot(slot_of_[id]);
      if (parent == kNoSlot) break;  // it was itself the one to go
    }
    return inserted;
  }

  void Insert(uint32_t id, ChunkSlot parent) {
    const ChunkSlot slot = free_.back();
    free_.pop_back();
    slot_of_[id] = slot.value();
    id_of_[slot.value()] = id;
    policy_->OnInsert({.slot = slot, .fingerprint = PrintOf(id), .parent = parent, .blocks = 1},
                      now_);
    if (policy_->size() <= chunks_) return;
    const ChunkSlot victim = policy_->Victim().value();
    policy_->OnErase(victim, EvictionPolicy::EraseReason::kEvicted);
    slot_of_[id_of_[victim.value()]] = kNoSlot.value();
    free_.push_back(victim);
  }

  const uint32_t chunks_;
  uint64_t next_id_ = 0;
  std::vector<Session> sessions_;
  std::vector<uint32_t> slot_of_;  // by id
  std::vector<uint32_t> id_of_;    // by slot
  std::vector<ChunkSlot> free_;
  std::vector<EvictionPolicy::ChainLink> chain_;
  SeededRandom random_{1};
  MonotonicTime now_{0};
  std::unique_ptr<EvictionPolicy> policy_;
};

}  // namespace kvkeep
