// DoubtfulRecords: of one device, the records in doubt (tiers/index/doubtful.h), as finely as can
// be told in bounded memory and written in a bounded value.
//
// What a join found in doubt, in groups of about as many records, in the order of their sequences:
// one record a group where they are few. A record leaves its group when it is in doubt no more, or
// is gone from the index; a group without any is in doubt no more. What is to be saved covers all
// groups that have some, with gaps where others were; where there are too many gaps the smallest
// are closed again: more doubt, never less.
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
  // The records in doubt, and those in none that lie between them and are not to be covered. In any
  // order, each once. Takes time: not under a lock. REQUIRES: a record is in doubt where one of
  // kMostRanges ranges, or the one above all of them, has it: so there are few runs of either.
  explicit DoubtfulRecords(std::vector<CommitSequence> doubtful,
                           std::vector<CommitSequence> certain = {});

  // REQUIRES: it was one of those in doubt, and did not leave before.
  void Remove(CommitSequence sequence);
  // Covers those that are left.
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
