// Measured: what one slice of work came to. Added up over slices, clients and rounds. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/histogram.h"
#include "tools/bench/histogram_json.h"

namespace kvkeep::bench {

struct Measured {
  double seconds = 0;  // of measured time; of several clients side by side the longest
  uint64_t ops = 0;    // calls that ended well
  uint64_t chunks = 0;
  uint64_t bytes = 0;         // payload made readable, stored, or copied
  uint64_t copied_bytes = 0;  // of these, copied by the client itself or for it by gRPC
  uint64_t failed_ops = 0;
  std::string first_failure;
  uint64_t verified_bytes = 0;
  uint64_t wrong_bytes = 0;
  double client_cpu_seconds = 0;
  LatencyHistogram latency;      // of each call
  LatencyHistogram first_piece;  // gets that wait piece by piece: until the first was readable

  double ops_per_second() const { return PerSecond(ops); }
  double chunks_per_second() const { return PerSecond(chunks); }
  double gb_per_second() const { return PerSecond(bytes) / 1e9; }

  // `side_by_side`: in the same time (another client), else one after the other.
  void Add(const Measured& other, bool side_by_side);

 private:
  double PerSecond(uint64_t n) const { return seconds <= 0 ? 0 : static_cast<double>(n) / seconds; }
};

// For another process: everything, histograms as buckets.
Json ToWire(const Measured& measured);
Measured FromWire(const Json& json);
// For people's scripts: rates, quantiles in microseconds, all counts.
Json ToReport(const Measured& measured);

}  // namespace kvkeep::bench
