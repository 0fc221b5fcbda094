// ArcPolicy: adaptive replacement cache, after N. Megiddo and D. Modha, "ARC: A Self-Tuning, Low
// Overhead Replacement Cache", FAST 2003.
//
// Two lists of chunks, those asked for once and those asked for again, each least recently used
// first, and the ghosts of both. A chunk that comes back as a ghost of one list shows that this
// list was too short, and moves the target: how many of all chunks may be in the first list. Ghosts
// are at most as many as chunks.
//
// The capacity of the paper is here the number of chunks that are in: chunks differ in size, and
// nothing goes before the tier is full.
#pragma once

#include "tiers/policy/ghosts.h"
#include "tiers/policy/list_policy.h"

namespace kvkeep {

class ArcPolicy final : public ListPolicy {
 public:
  explicit ArcPolicy(const PolicyOptions& options);

  // Returns how many chunks in the list of those asked for once are aimed at. For tests.
  uint32_t target() const { return target_; }

 private:
  static constexpr int kOnce = 0, kAgain = 1;  // Node::value: which it is of; lists; ghosts

  int ListOfTouched(ChunkSlot slot, Node& node) override;
  int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) override;
  void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) override;
  ChunkSlot Next() override;
  std::vector<int> ListOrder() const override;
  int NextList() const;
  void TrimGhosts();

  Ghosts ghosts_;
  std::array<uint32_t, 2> chunks_{};  // of each list, those aside included
  uint32_t target_ = 0;
};

}  // namespace kvkeep
