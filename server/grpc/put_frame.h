// One PutFrame as it arrived: headers parsed, payload left where it lies.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <span>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/wire.h"

namespace kvkeep {

struct PutFrameView {
  std::optional<v1::PutStreamHeader> stream;
  std::optional<v1::PutChunkHeader> chunk;
  bool abort = false;
  std::vector<WireRun> payload;  // of the memory that was parsed
  uint64_t payload_bytes = 0;
};

// Returns what the generated parser would make of the message, with its fields in any order.
// InvalidArgument: it is malformed. The view's payload points into `runs`.
absl::StatusOr<PutFrameView> ParsePutFrame(std::span<const WireRun> runs);

}  // namespace kvkeep
