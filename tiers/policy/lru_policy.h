// LruPolicy: the least recently used chunk goes first, with a request's chunks touched tail first.
//
// Two intrusive lists over one array indexed by ChunkSlot, which several may share; no hashing, and
// no memory taken beyond that array's, which is as long as there are slots. Victims come from
// `early` first:
//
//     early: transient chunks, the newest first, then unparked ones in the order they were parked
//     main:  everything else, from the longest untouched to the youngest
//
// - "Touched lately" means: in one of the last kLatelyRequests calls of OnRequest. A chunk placed
//   behind its parent has the parent's place, so it has its age too. A parent outside main (parked,
//   unparked or transient, and not touched since) has no place among the recent: its child is the
//   youngest.
// - A parked chunk is in neither list. A touch while parked puts it at its place in main, still
//   parked; should it get to the oldest end, Victim() takes it out again, or has the owner park it
//   again when there are many.
// - Unpark looks for the place among the other unparked ones from where the last one went. A run
//   released head first or tail first finds it in one step; after kUnparkSteps steps the place is
//   good enough.
//
// Every call but OnRequest (O(chain)) and EvictionOrder is O(1).
#pragma once

#include <algorithm>
#include <array>

#include "tiers/base/growing_memory.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class LruPolicy final : public EvictionPolicy {
 public:
  static constexpr int64_t kLatelyRequests = 64;
  static constexpr int kUnparkSteps = 64;
  static constexpr int kVictimSteps = 64;

  explicit LruPolicy(const PolicyOptions& options);

  absl::string_view name() const override { return "lru"; }
  void OnRequest(std::span<const ChainLink> chain, MonotonicTime now) override;
  void OnRequestContinued(std::span<const ChainLink> chain, MonotonicTime now) override;
  void OnInsert(const NewChunk& chunk, MonotonicTime now) override;
  void OnErase(ChunkSlot slot, EraseReason reason) override;
  std::optional<ChunkSlot> Victim() override;
  void Park(ChunkSlot slot) override;
  void Unpark(ChunkSlot slot) override;
  std::span<std::byte> MemoryDue() override {
    return memory_->Due(uint64_t{slot_end_} * sizeof(Node));
  }
  void ExpectSlotsFrom(uint32_t end) override { slot_end_ = std::max(slot_end_, end); }
  void Prefetch(ChunkSlot slot) const override { __builtin_prefetch(&At(slot)); }
  size_t size() const override { return size_; }
  int64_t Recency(ChunkSlot slot) const override;
  int64_t Newest() const override { return touches_; }
  std::vector<ChunkSlot> EvictionOrder() const override;

 private:
  enum class Place : uint8_t {
    kAbsent,  // not in the policy
    kOff,     // parked, in no list
    kEarly,
    kMain,
  };
  // 16 bytes, four to a cache line: touching a chunk touches its neighbours' nodes too. All zeros:
  // absent.
  struct Node {
    ChunkSlot older;
    ChunkSlot younger;
    // In main: the number of the touch whose place this is. In early, or off: the order in early.
    int64_t number : 60 = 0;
    Place place : 3 = Place::kAbsent;
    bool parked : 1 = false;
  };
  static_assert(sizeof(Node) == 16);
  struct List {
    ChunkSlot oldest = kNoSlot;
    ChunkSlot youngest = kNoSlot;
  };

  Node& At(ChunkSlot slot) { return nodes_[slot.value()]; }
  const Node& At(ChunkSlot slot) const { return nodes_[slot.value()]; }
  // In this one, or one that shares its memory.
  bool Contains(ChunkSlot slot) const;
  List& ListOf(Place place) { return place == Place::kEarly ? early_ : main_; }
  // Puts an unlinked chunk just behind `younger`, which is in that list; kNoSlot: at its young end.
  void Link(ChunkSlot slot, Place place, ChunkSlot younger);
  // Takes it out of its list, if it is in one.
  void Unlink(ChunkSlot slot);
  void TakeOff(ChunkSlot slot);
  void Touch(ChunkSlot slot);
  bool TouchedLately(ChunkSlot slot) const;
  // The member of early that a chunk of this rank belongs just behind.
  ChunkSlot EarlyNeighbour(int64_t rank) const;

  const uint32_t max_chunks_;
  const std::shared_ptr<GrowingMemory> memory_;
  Node* const nodes_;
  uint32_t slot_end_ = 0;  // from here on there was never a node of this policy
  List early_;
  List main_;
  size_t size_ = 0;
  int64_t touches_ = 0;
  // Of the last requests: the number of touches before it. A ring.
  std::array<int64_t, kLatelyRequests> before_request_{};
  size_t requests_ = 0;
  int64_t last_parked_rank_ = 0;       // ranks of parked chunks count up from 1
  int64_t last_transient_rank_ = 0;    // those of transient ones count down from -1
  ChunkSlot last_unparked_ = kNoSlot;  // a member of early, or kNoSlot
};

}  // namespace kvkeep
