// SavedRecency: the order of eviction of a device's chunks, as earlier processes left it in the
// index (tiers/index/recency.h). The join reads it once.
//
// Former daemons kept it in one named value, "recency". Version 1: u8 version, then the sequence
// (u64, little-endian) of each chunk, the first to be evicted first; chunks that are not in it came
// later. Version 2, for a device with more chunks than a value holds: u8 version, the newest
// sequence at that time (u64), then the sequences of the chunks that are evicted last; a chunk that
// is not in it is evicted before all of these, unless its sequence is newer. A former value is
// converted once: an entry is saved for each chunk, then the value is removed.
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
  Halved<uint64_t> rank;  // the chunk with the lowest rank is evicted first
  Halved<CommitSequence> sequence;
  ChunkSlot slot;
};
static_assert(sizeof(AdoptedChunk) == 20, "there are as many as a start finds records");

class FormerRecency {
 public:
  static constexpr char kName[] = "recency";

  // None: there is no such value, or it cannot be read. Then only the order of eviction suffers.
  static std::optional<FormerRecency> Read(ChunkIndex& index);
  uint64_t RankOf(CommitSequence sequence) const;

 private:
  absl::flat_hash_map<CommitSequence, uint64_t> ranks_;
  uint64_t first_rank_ = 0;  // of ranks_; other sequences that are not newer get lower ranks
};

struct SavedRecency {
  // No process counts this far. An entry with a higher rank is damaged.
  static constexpr uint64_t kMostRank = uint64_t{1} << 62;
  static constexpr size_t kMostDropped = 65536;  // entries at one start; the next drops others

  uint64_t newest = 0;  // no saved rank is higher
  // Every chunk with a sequence up to here is saved.
  CommitSequence saved_to{UINT64_MAX};
  uint64_t dropped = 0;  // entries without a record

  // Ranks the chunks and puts them in their order. Converts a former value, and drops the entries
  // without a chunk.
  static SavedRecency Read(ChunkIndex& index, std::vector<AdoptedChunk>& adopted);
};

}  // namespace kvkeep::store_internal
