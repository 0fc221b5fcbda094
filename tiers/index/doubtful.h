// Doubtful: the records of a device whose data may not have been on stable storage when a process
// or the machine ended, by sequence. A named value of the index, so that the doubt outlives
// restarts:
//
//   "doubtful"   version u8 = 2, then {`after` u64, `to` u64} x ranges, ascending; little-endian.
//                Version 1 has one range; a process of that time takes version 2 for all records.
//
// Chunks in doubt are read like all others, and lost ones fail their checksum; but no caller is
// told that one is durable before it was read whole or written anew.
#pragma once

#include <absl/strings/string_view.h>

#include <optional>
#include <string>
#include <vector>

#include "tiers/index/record.h"

namespace kvkeep {

inline constexpr char kDoubtfulName[] = "doubtful";

struct Doubtful {
  static constexpr size_t kMostRanges = 1024;

  // The sequences in (after, to].
  struct Range {
    CommitSequence after, to;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> ranges;  // ascending, none empty, none begins before the one before it ends

  static Doubtful All();  // when nobody can tell
  bool contains(CommitSequence sequence) const;
  bool operator==(const Doubtful&) const = default;
};

// REQUIRES: at most kMostRanges.
std::string EncodeDoubtful(const Doubtful& doubtful);
// Without a value no record is in doubt; with one that does not decode, all are.
Doubtful DecodeDoubtful(const std::optional<std::string>& value);

}  // namespace kvkeep
