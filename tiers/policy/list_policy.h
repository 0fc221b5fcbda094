// ListPolicy: what the policies share that keep their chunks in a few lists.
//
// Nodes by ChunkSlot in one array, which several policies may share; each is in one of up to 64
// lists of the policy, from the oldest to the youngest, or in `early`, or in none (parked). Victims
// come from early first: transient chunks, the newest first, then unparked ones in the order they
// were parked. A touch brings a chunk, parked or not, where the policy wants it. See lru_policy.h,
// which is the same with one list, for what parking means.
//
// A policy says in which list a touched or new chunk goes, and which chunk of its lists is next.
// A new chunk goes just behind its parent where that is in the same list since one of the last
// kLatelyRequests requests, else it is the youngest there: so the tail of a chain goes first.
//
// Every call but OnRequest (O(chain)) and EvictionOrder is O(1).
#pragma once

#include <algorithm>
#include <array>

#include "tiers/base/growing_memory.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class ListPolicy : public EvictionPolicy {
 public:
  static constexpr int kMostLists = 64;
  static constexpr int64_t kLatelyRequests = 64;
  static constexpr int kUnparkSteps = 64;
  static constexpr int kVictimSteps = 64;

  void OnRequest(std::span<const ChainLink> chain, MonotonicTime now) final;
  void OnRequestContinued(std::span<const ChainLink> chain, MonotonicTime now) final;
  void OnInsert(const NewChunk& chunk, MonotonicTime now) final;
  void OnErase(ChunkSlot slot, EraseReason reason) final;
  std::optional<ChunkSlot> Victim() final;
  void Park(ChunkSlot slot) final;
  void Unpark(ChunkSlot slot) final;
  std::span<std::byte> MemoryDue() override {
    return memory_->Due(uint64_t{slot_end_} * sizeof(Node));
  }
  void ExpectSlotsFrom(uint32_t end) final { slot_end_ = std::max(slot_end_, end); }
  void Prefetch(ChunkSlot slot) const final { __builtin_prefetch(&At(slot)); }
  size_t size() const final { return size_; }
  int64_t Recency(ChunkSlot slot) const final;
  int64_t Newest() const final { return moves_; }
  std::vector<ChunkSlot> EvictionOrder() const final;

 protected:
  static constexpr uint32_t kMostValue = 63;
  // 24 bytes. All zeros: absent.
  struct Node {
    ChunkSlot older;
    ChunkSlot younger;
    Fingerprint fingerprint;
    // In a list: counts up with the moves to its young end. In early, or off: the order in early.
    int64_t number : 48 = 0;
    uint64_t place : 7 = 0;
    uint64_t parked : 1 = 0;
    uint64_t value : 8 = 0;  // the policy's own, up to kMostValue
  };

  // `lists` of them, 1 to kMostLists.
  ListPolicy(const PolicyOptions& options, int lists);

  // To which list's young end the chunk goes that was touched: it is in list `from`, or in none,
  // -1. Node::value is the policy's to change.
  virtual int ListOfTouched(Node& node, int from) = 0;
  virtual int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) = 0;
  // It is out already, of list `from`, or of none, -1; size() is that without it.
  virtual void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) = 0;
  // The next to go of the lists; kNoSlot when all of them are empty.
  virtual ChunkSlot Next() = 0;
  // The order in which lists are emptied if nothing else happens; for EvictionOrder.
  virtual std::vector<int> ListOrder() const = 0;

  Node& At(ChunkSlot slot) { return nodes_[slot.value()]; }
  // -1: in none of the policy's.
  static int ListOf(const Node& node) {
    return node.place >= kFirst ? static_cast<int>(node.place - kFirst) : -1;
  }
  ChunkSlot Oldest(int list) const { return lists_[kFirst + list].oldest; }
  // To the young end of the list.
  void Move(ChunkSlot slot, int list);

 private:
  static constexpr uint32_t kAbsent = 0, kOff = 1, kEarly = 2, kFirst = 3;
  struct List {
    ChunkSlot oldest = kNoSlot;
    ChunkSlot youngest = kNoSlot;
  };

  const Node& At(ChunkSlot slot) const { return nodes_[slot.value()]; }
  bool Contains(ChunkSlot slot) const;
  // Puts an unlinked chunk just behind `younger`, which is in that list; kNoSlot: at its young end.
  void Link(ChunkSlot slot, uint32_t place, ChunkSlot younger);
  void Unlink(ChunkSlot slot);
  void TakeOff(ChunkSlot slot);
  void Touch(ChunkSlot slot);
  void TouchAll(std::span<const ChainLink> chain);
  bool PlacedLately(ChunkSlot slot, uint32_t place) const;
  // The member of early that a chunk of this rank belongs just behind.
  ChunkSlot EarlyNeighbour(int64_t rank) const;

  const uint32_t max_chunks_;
  const std::shared_ptr<GrowingMemory> memory_;
  Node* const nodes_;
  uint32_t slot_end_ = 0;  // from here on there was never a node of this policy
  std::vector<List> lists_;
  size_t size_ = 0;
  int64_t moves_ = 0;
  // Of the last requests: the number of moves before it. A ring.
  std::array<int64_t, kLatelyRequests> before_request_{};
  size_t requests_ = 0;
  int64_t last_parked_rank_ = 0;       // ranks of parked chunks count up from 1
  int64_t last_transient_rank_ = 0;    // those of transient ones count down from -1
  ChunkSlot last_unparked_ = kNoSlot;  // a member of early, or kNoSlot
};

}  // namespace kvkeep
