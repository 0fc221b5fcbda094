// Measured: the results of one slice of work. Added up over slices and threads. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tools/bench/client/histogram.h"
#include "tools/bench/client/json_fields.h"

namespace kvkeep::bench {

struct Measured {
  double seconds = 0;  // measured; the longest of several clients side by side
  uint64_t ops = 0;    // calls that ended well
  uint64_t chunks = 0;
  uint64_t bytes = 0;         // payload made readable, stored, or copied
  uint64_t copied_bytes = 0;  // of `bytes`, copied by the client itself or for it by gRPC
  uint64_t failed_ops = 0;
  std::string first_failure;
  uint64_t verified_bytes = 0;
  uint64_t wrong_bytes = 0;
  double client_cpu_seconds = 0;
  LatencyHistogram latency;      // of each call
  LatencyHistogram first_piece;  // until the first piece was readable, of gets by pieces

  KVKEEP_FIELDS(seconds, ops, chunks, bytes, copied_bytes, failed_ops, first_failure,
                verified_bytes, wrong_bytes, client_cpu_seconds, latency, first_piece)

  // `side_by_side`: in the same time (another thread), else one after the other.
  void Add(const Measured& other, bool side_by_side) {
    const double longest = std::max(seconds, other.seconds);
    AddFields(other, this);
    if (side_by_side) seconds = longest;
  }
};

}  // namespace kvkeep::bench
