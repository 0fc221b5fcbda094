// RecencyDelta: the index's note of how recently a chunk was wanted. One small entry a record,
// apart from the records (column family "recency"), so that it is written alone when only recency
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
  // The lower, the sooner the chunk goes; compares with all values ever saved for the device. None:
  // removes the entry.
  std::optional<uint64_t> recency;

  bool operator==(const RecencyDelta&) const = default;
};

std::string EncodeRecencyKey(CommitSequence sequence);
std::string EncodeRecencyValue(uint64_t recency);
// Returns nullopt if the entry is damaged. The recency of a result is never none.
std::optional<RecencyDelta> DecodeRecency(absl::string_view key, absl::string_view value);
// Returns the bytes of key and value together.
uint64_t EncodedBytes(const RecencyDelta& delta);

}  // namespace kvkeep
