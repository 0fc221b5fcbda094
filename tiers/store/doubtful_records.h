// DoubtfulRecords: the records of one device that are in doubt (tiers/index/doubtful.h), as exactly
// as bounded memory and a bounded value of the index allow.
//
// The records that a join found in doubt are divided, in the order of their sequences, into groups
// of about the same size. If there are few, each group has one record. A record leaves its group
// when it is not in doubt any more, or is gone from the index. A group without records is not in
// doubt any more. The saved ranges cover all groups that have records, with gaps between them. If
// there are too many gaps, the smallest are closed again. This means more doubt, never less.
//
// Owned by the device's tier; the store's lock protects it.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/index/chunk_index.h"
#include "tiers/index/doubtful.h"

namespace kvkeep::store_internal {

// As the named value of the index.
inline absl::Status SaveDoubtful(ChunkIndex& index, const Doubtful& doubtful) {
  return index.PutMeta(kDoubtfulName, EncodeDoubtful(doubtful));
}

class DoubtfulRecords {
 public:
  static constexpr size_t kMostGroups = 8192;  // looked at under one hold

  DoubtfulRecords() = default;
  // `doubtful`: the records in doubt. `certain`: the records that are not, which the ranges should
  // not cover. Both are in any order, each record once. Takes time, so do not call it under a lock.
  // REQUIRES: the records in doubt are those of at most kMostRanges ranges and of one above all of
  // these, so that there are few runs of either kind.
  explicit DoubtfulRecords(std::vector<CommitSequence> doubtful,
                           std::vector<CommitSequence> certain = {});

  // Takes out a record. REQUIRES: it was one of those in doubt, and was not taken out before.
  void Remove(CommitSequence sequence);
  // Returns ranges that cover the records that are left.
  Doubtful Ranges() const;
  uint64_t size() const { return size_; }

 private:
  struct Group {
    CommitSequence first, last;  // of its records
    uint64_t records = 0;        // at first
    uint64_t left = 0;
  };
  std::vector<Group> groups_;  // ascending
  uint64_t size_ = 0;
};

}  // namespace kvkeep::store_internal
