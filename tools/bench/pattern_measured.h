// PatternMeasured: what the requests of a pattern came to. Added up over threads and workers. Plain
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/histogram.h"
#include "tools/bench/histogram_json.h"

namespace kvkeep::bench {

// A reader who waits longer than this for his next chunk is stalled.
inline constexpr double kStallSeconds = 0.1;

// What became of one prompt.
struct Recall {
  uint64_t asked_chunks = 0;
  // Of the chunks that were there, how long a reader in order waited for each; the first one since
  // the request was due.
  std::vector<double> waits_seconds;
  uint64_t bytes = 0;
  bool from_nvme = false;        // not all of it was in memory when it was asked for
  double recompute_seconds = 0;  // of what was found; 0: not known

  double seconds() const;
};

struct PatternMeasured {
  double seconds = 0;  // until the last request ended; of several workers the longest
  uint64_t requests = 0;
  uint64_t asked_chunks = 0, found_chunks = 0, stored_chunks = 0, refused_chunks = 0;
  uint64_t recalled_bytes = 0, stored_bytes = 0;
  uint64_t prefixes = 0;  // prompts of which at least one chunk was there
  uint64_t prefixes_from_nvme = 0;
  uint64_t faster_prefixes = 0;  // than recomputing them
  uint64_t stalls = 0;           // waits longer than kStallSeconds
  uint64_t failed_calls = 0;
  std::string first_failure;
  uint64_t verified_bytes = 0, wrong_bytes = 0;
  double client_cpu_seconds = 0;
  LatencyHistogram chunk_wait;  // a reader's wait for the next chunk
  LatencyHistogram chunk;       // until a chunk was there, since the request was due
  LatencyHistogram prefix;      // until all of the prefix was, since then
  LatencyHistogram store;       // of what was missing and of the answer, since the recall ended
  LatencyHistogram began_late;  // how late we began what was due: our own fault, and counted above

  void Count(const Recall& recall);
  void Fail(const std::string& why);
  void Add(const PatternMeasured& other);
};

Json ToWire(const PatternMeasured& measured);
PatternMeasured PatternMeasuredFromWire(const Json& json);
// For scripts: all of it, latencies as quantiles in microseconds.
Json ToReport(const PatternMeasured& measured);

}  // namespace kvkeep::bench
