// ListPolicy: the base of all policies of the store: chunks in a few intrusive lists, parking, tail
// first. `lru` is this with one list.
//
// Nodes by ChunkSlot in one array, which several policies may share; each is in one of up to 64
// lists of the policy, from the oldest to the youngest, or in `early`, or in none (parked). No
// hashing, and no memory taken beyond that array's. Victims come from early first:
//
//     early: transient chunks, the newest first, then unparked ones in the order they were parked
//     lists: everything else, from the longest untouched to the youngest
//
// A policy says in which list a touched or new chunk goes, and which chunk of its lists is next.
//
// A chunk is *recent* in a list if one of the last kLatelyRequests requests put it there. A parked,
// unparked or transient chunk is in no list, so it is not recent until it is touched.
//
// - A new chunk goes just behind its parent if the parent is recent in the same list. It then has
//   the parent's age. Otherwise it is the youngest of the list. So the tail of a chain goes first.
// - A parked chunk is in no list until it is touched. A touch puts it where the policy wants it,
//   still parked.
// - If such a chunk becomes the oldest, Victim() takes it out again. If there are many of them,
//   Victim() may return one, and the owner parks it again.
// - Unpark looks for the place among the other unparked ones from where the last one went. A run
//   released head first or tail first finds it in one step; after kUnparkSteps steps the place is
//   good enough.
//
// Every call but OnRequest (O(chain)) and EvictionOrder is O(1). 16 bytes a slot, and 8 more for a
// policy that keeps fingerprints.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class ListPolicy : public EvictionPolicy {
 public:
  static constexpr int kMostLists = 64;
  static constexpr int64_t kLatelyRequests = 64;
  static constexpr int kUnparkSteps = 64;
  static constexpr int kVictimSteps = 64;

  void OnRequest(std::span<const ChainLink> links, MonotonicTime now, Slice slice) final;
  void OnInsert(const NewChunk& chunk, MonotonicTime now) final;
  void OnErase(ChunkSlot slot, EraseReason reason) final;
  std::optional<ChunkSlot> Victim() final;
  bool HasVictim() final;
  void Park(ChunkSlot slot) final;
  void Unpark(ChunkSlot slot) final;
  int64_t Recency(ChunkSlot slot) const final;
  int64_t Newest() const final { return moves_; }

  // Slots from the first to go to the last. Parked slots come first, except those touched since,
  // which are at their touched place. For tests, as this call takes time that grows with size().
  // REQUIRES: the policy shares its memory with none.
  std::vector<ChunkSlot> EvictionOrder() const;

 protected:
  static constexpr uint32_t kMostValue = 63;
  // 16 bytes, four to a cache line: touching a chunk touches its neighbours' nodes too. All zeros:
  // absent.
  struct Node {
    ChunkSlot older;
    ChunkSlot younger;
    // In a list: counts up with the moves to its young end. In early, or off: the order in early.
    int64_t number : 50 = 0;
    uint64_t place : 7 = 0;
    uint64_t parked : 1 = 0;
    uint64_t value : 6 = 0;  // the policy's own, up to kMostValue
  };
  static_assert(sizeof(Node) == 16);
  static constexpr int64_t kMostMoves = int64_t{1} << 49;  // at a million a second for 17 years
  enum class Keeps { kNodes, kFingerprintsToo };

  // `lists` of them, 1 to kMostLists.
  ListPolicy(const PolicyOptions& options, int lists, Keeps keeps = Keeps::kNodes);

  // Returns the list to whose young end a touched chunk goes. May change Node::value.
  virtual int ListOfTouched(ChunkSlot slot, Node& node) = 0;
  virtual int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) = 0;
  // Called after the chunk has left list `from` (-1: it was in none). size() no longer counts it.
  virtual void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) = 0;
  // Returns the next chunk of the lists to go, or kNoSlot when all of them are empty.
  virtual ChunkSlot Next() = 0;
  // Returns the order in which lists are emptied if nothing else happens. For EvictionOrder.
  virtual std::vector<int> ListOrder() const = 0;

  Node& At(ChunkSlot slot) { return memory_->nodes[slot.value()]; }
  // REQUIRES: the chunk is in the policy, or Erased is being called for it;
  // Keeps::kFingerprintsToo.
  Fingerprint FingerprintOf(ChunkSlot slot) const { return memory_->fingerprints[slot.value()]; }
  // Returns -1 if the node is in none of the policy's lists.
  static int ListOf(const Node& node) {
    return node.place >= kFirst ? static_cast<int>(node.place - kFirst) : -1;
  }
  ChunkSlot Oldest(int list) const { return lists_[kFirst + list].oldest; }
  // Returns the toucher for the policy's own further memory.
  MemoryToucher* toucher() const { return memory_->slots->toucher(); }
  // Moves the chunk to the young end of the list.
  void Move(ChunkSlot slot, int list);
  // Moves the chunk to where OnInsert would put it as a new one: just behind `parent`, if that is
  // lately there. `parent`: kNoSlot, or in this policy.
  void MoveBehind(ChunkSlot slot, int list, ChunkSlot parent);

 private:
  static constexpr uint32_t kAbsent = 0, kOff = 1, kEarly = 2, kFirst = 3;
  struct List {
    ChunkSlot oldest = kNoSlot;
    ChunkSlot youngest = kNoSlot;
  };

  // Memory shared by several policies is one object.
  struct Memory {
    Memory(const PolicyOptions& options, Keeps keeps);
    const std::shared_ptr<SlotArrays> slots;
    Node* const nodes;
    Fingerprint* const fingerprints;  // null: not kept
  };

  const Node& At(ChunkSlot slot) const { return memory_->nodes[slot.value()]; }
  // Returns whether the slot is in this policy or in one that shares its memory.
  bool Contains(ChunkSlot slot) const;
  // Puts an unlinked chunk just behind `younger`, which is in that list; kNoSlot: at its young end.
  void Link(ChunkSlot slot, uint32_t place, ChunkSlot younger);
  // Puts an unlinked chunk just behind `parent`, if that is lately there, else at the young end.
  void LinkBehind(ChunkSlot slot, uint32_t place, ChunkSlot parent);
  void Unlink(ChunkSlot slot);
  void TakeOff(ChunkSlot slot);
  void Touch(ChunkSlot slot);
  void TouchFew(std::span<const ChainLink> links);  // tail first, as OnRequest
  bool PlacedLately(ChunkSlot slot, uint32_t place) const;
  // The member of early that a chunk of this rank belongs just behind.
  ChunkSlot EarlyNeighbour(int64_t rank) const;

  const uint32_t max_chunks_;
  const std::shared_ptr<Memory> memory_;
  uint32_t slot_end_ = 0;  // from here on there was never a node of this policy
  std::vector<List> lists_;
  int64_t moves_ = 0;
  // Ring of the number of moves before each of the last requests.
  std::array<int64_t, kLatelyRequests> before_request_{};
  size_t requests_ = 0;
  int64_t last_parked_rank_ = 0;       // ranks of parked chunks count up from 1
  int64_t last_transient_rank_ = 0;    // those of transient ones count down from -1
  ChunkSlot last_unparked_ = kNoSlot;  // a member of early, or kNoSlot
};

}  // namespace kvkeep
