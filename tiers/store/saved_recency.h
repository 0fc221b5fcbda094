// SavedRecency: the order in which a device's chunks go next, as earlier processes left it in the
// index (tiers/index/recency.h). Read once, by the join.
//
// A former version kept it in one named value, "recency". Its version 1: u8 version, then the
// sequence (u64, little-endian) of each chunk, the first to go first; chunks that are not in it
// came later. Version 2, of a device with more chunks than a value holds: u8 version, the newest
// sequence at that time (u64), then those of the chunks that go last; a chunk that is not in it
// goes before them all, unless its sequence is newer. An older value is converted once: an entry is
// saved for each chunk, then the value is removed.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <optional>
#include <string>
#include <vector>

#include "tiers/index/chunk_index.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/packed_values.h"

namespace kvkeep::store_internal {

// A record that a join has adopted.
struct AdoptedChunk {
  Halved<uint64_t> rank;  // the lower, the sooner it goes
  Halved<CommitSequence> sequence;
  ChunkSlot slot;
};
static_assert(sizeof(AdoptedChunk) == 20, "there are as many as a start finds records");

class FormerRecency {
 public:
  static constexpr char kName[] = "recency";

  // None: there is no such value, or it cannot be read: only the order of eviction suffers.
  static std::optional<FormerRecency> Read(ChunkIndex& index);
  uint64_t RankOf(CommitSequence sequence) const;

 private:
  absl::flat_hash_map<CommitSequence, uint64_t> ranks_;
  uint64_t first_rank_ = 0;  // of those in it: sequences that are not newer are below
};

struct SavedRecency {
  // More than any process counts: what says more is damaged.
  static constexpr uint64_t kMostRank = uint64_t{1} << 62;
  static constexpr size_t kMostDropped = 65536;  // at one start; the others go at the next

  uint64_t newest = 0;  // no rank that is saved is above it
  // Every chunk with a sequence up to here is saved.
  CommitSequence saved_to{UINT64_MAX};
  uint64_t dropped = 0;  // entries without a record

  // Ranks the chunks and puts them in their order. Writes to the index what is to be taken over,
  // and drops the entries that are no chunk's.
  static SavedRecency Read(ChunkIndex& index, std::vector<AdoptedChunk>& adopted);
};

}  // namespace kvkeep::store_internal
