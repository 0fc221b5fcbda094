// SavedRecency: the order in which a device's chunks go next, as the last process left it.
//
// Named value "recency" of the index. Version 1: u8 version, then the sequence (u64, little-endian)
// of each chunk, the first to go first; chunks that are not in it came later. Version 2, of a
// device with more chunks than a value holds: u8 version, the newest sequence of then (u64), then
// those of the chunks that go last; who is not in it goes before them all, unless its sequence is
// newer.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <optional>
#include <string>

#include "tiers/base/units.h"
#include "tiers/index/chunk_index.h"

namespace kvkeep::store_internal {

class SavedRecency {
 public:
  static constexpr char kName[] = "recency";
  static constexpr size_t kMaxBytes = 64 * kMiB;  // of one value
  static constexpr size_t kMostChunks = kMaxBytes / sizeof(uint64_t) - 2;

  // Begins a value; `newest` where it will not hold all chunks. Then AddTo for each, the first to
  // go first.
  static std::string Begin(std::optional<CommitSequence> newest);
  static void AddTo(std::string& value, CommitSequence sequence);
  // Knows none when it cannot be read: only the order of eviction suffers.
  static SavedRecency Read(ChunkIndex& index);

  // The lower, the sooner it goes.
  uint64_t RankOf(CommitSequence sequence) const;

 private:
  absl::flat_hash_map<CommitSequence, uint64_t> ranks_;
  uint64_t first_rank_ = 0;  // of those in it: sequences that are not newer are below
};

}  // namespace kvkeep::store_internal
