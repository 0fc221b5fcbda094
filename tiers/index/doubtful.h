// Doubtful: the records of a device whose data may not have been on stable storage when a process
// or the machine ended, by sequence. A named value of the index, so that the doubt outlives
// restarts:
//
//   "doubtful"   version u8 = 1, `after` u64, `to` u64; little-endian
//
// What is in doubt is read like anything else, and what is lost fails its checksum; but nobody is
// told that it is durable before it was read whole or written anew.
#pragma once

#include <absl/strings/string_view.h>

#include <optional>
#include <string>

#include "tiers/index/record.h"

namespace kvkeep {

inline constexpr char kDoubtfulName[] = "doubtful";

// Those in (after, to].
struct Doubtful {
  CommitSequence after, to;
  bool contains(CommitSequence sequence) const { return after < sequence && sequence <= to; }
  bool operator==(const Doubtful&) const = default;
};

// When nobody can tell.
inline constexpr Doubtful kAllDoubtful{CommitSequence(0), CommitSequence(UINT64_MAX)};

std::string EncodeDoubtful(const Doubtful& doubtful);
// No value: none. One that does not decode: all.
Doubtful DecodeDoubtful(const std::optional<std::string>& value);

}  // namespace kvkeep
