// RecencyDelta: what the index keeps of how recently a chunk was wanted. One small entry a record,
// apart from the records (column family "recency"), so that it is written by itself when only that
// has changed:
//
//   key    sequence of the record (8, big-endian, so that a scan is in their order)
//   value  recency, little-endian, without its high bytes that are zero: 1 to 8 bytes
//
// An entry may outlive its record, and a record may have none.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tiers/index/record.h"

namespace kvkeep {

struct RecencyDelta {
  CommitSequence sequence;
  // The lower, the sooner it goes; compares with what was saved of the device at any time. None:
  // the entry goes.
  std::optional<uint64_t> recency;

  bool operator==(const RecencyDelta&) const = default;
};

std::string EncodeRecencyKey(CommitSequence sequence);
std::string EncodeRecencyValue(uint64_t recency);
// None: damaged. Its recency is never none.
std::optional<RecencyDelta> DecodeRecency(absl::string_view key, absl::string_view value);
// Of key and value.
uint64_t EncodedBytes(const RecencyDelta& delta);

}  // namespace kvkeep
