// PatternMeasured: the results of a pattern's requests. Added up over threads. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/client/histogram.h"
#include "tools/bench/client/json_fields.h"

namespace kvkeep::bench {

// A reader that waits longer than this for its next chunk is stalled.
inline constexpr double kStallSeconds = 0.1;

// Outcome of one prompt.
struct Recall {
  uint64_t asked_chunks = 0;
  // A sequential reader's waits for the chunks that were present; the first one counts from when
  // the request was due.
  std::vector<double> waits_seconds;
  uint64_t bytes = 0;
  bool from_nvme = false;        // some of it was not in memory at the request
  double recompute_seconds = 0;  // for the chunks found; 0: not known
};

struct PatternMeasured {
  double seconds = 0;  // until the last request ended; the longest of several workers
  double client_cpu_seconds = 0;
  uint64_t requests = 0;
  uint64_t asked_chunks = 0, found_chunks = 0, stored_chunks = 0, refused_chunks = 0;
  uint64_t recalled_bytes = 0, stored_bytes = 0;
  uint64_t prefixes = 0;  // prompts with at least one chunk present
  uint64_t prefixes_from_nvme = 0;
  uint64_t faster_prefixes = 0;  // than recomputing them
  uint64_t stalls = 0;           // waits longer than kStallSeconds
  uint64_t failed_calls = 0;
  uint64_t verified_bytes = 0, wrong_bytes = 0;
  std::string first_failure;
  LatencyHistogram chunk_wait;  // a reader's wait for the next chunk
  LatencyHistogram chunk;       // from when the request was due to a chunk's arrival
  LatencyHistogram prefix;      // from then to the arrival of the whole prefix
  LatencyHistogram store;       // of missing chunks and the answer, since the recall ended
  LatencyHistogram began_late;  // the player's own delay in beginning; included above

  KVKEEP_FIELDS(seconds, client_cpu_seconds, requests, asked_chunks, found_chunks, stored_chunks,
                refused_chunks, recalled_bytes, stored_bytes, prefixes, prefixes_from_nvme,
                faster_prefixes, stalls, failed_calls, verified_bytes, wrong_bytes, first_failure,
                chunk_wait, chunk, prefix, store, began_late)

  void Count(const Recall& recall) {
    asked_chunks += recall.asked_chunks;
    found_chunks += recall.waits_seconds.size();
    recalled_bytes += recall.bytes;
    double since_due = 0;
    for (const double wait : recall.waits_seconds) {
      since_due += wait;
      chunk_wait.RecordSeconds(wait);
      chunk.RecordSeconds(since_due);
      stalls += wait > kStallSeconds;
    }
    if (recall.waits_seconds.empty()) return;
    ++prefixes;
    prefixes_from_nvme += recall.from_nvme;
    faster_prefixes += since_due < recall.recompute_seconds;
    prefix.RecordSeconds(since_due);
  }
  void Fail(const std::string& why) {
    if (failed_calls++ == 0) first_failure = why;
  }
  void Add(const PatternMeasured& other) {
    const double longest = std::max(seconds, other.seconds);
    AddFields(other, this);
    seconds = longest;
  }
};

}  // namespace kvkeep::bench
