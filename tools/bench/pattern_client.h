// PatternClient: one worker of a pattern, an engine with its share of the users, in a process of
// its own, as the main process commands it (child_process.h). One thread here; in the child as many
// as requests may be under way at a time.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tools/bench/child_process.h"
#include "tools/bench/client_target.h"
#include "tools/bench/pattern.h"
#include "tools/bench/pattern_measured.h"

namespace kvkeep::bench {

struct PatternJob {
  PatternOptions pattern;
  uint64_t chunk_bytes = 0;
  uint32_t get_chunks = 8;                 // of a call over gRPC
  uint32_t depth = 16;                     // requests of a worker at a time
  double recompute_seconds_per_chunk = 0;  // 0: not known
};

class PatternClient {
 public:
  // Forks and connects; see ConnectTo.
  static absl::StatusOr<std::unique_ptr<PatternClient>> Start(const ClientTarget& target,
                                                              uint32_t worker);

  const std::string& path() const { return path_; }  // "grpc" or "local"
  const std::string& why() const { return why_; }

  // Makes the pattern; the calls below are about it.
  absl::Status Prepare(const PatternJob& job);
  // Stores chunks [first, first + count) of those that are there before.
  absl::Status StoreBefore(uint64_t first, uint64_t count);
  // Recalls the prompts of this worker's first requests, one at a time.
  absl::StatusOr<PatternMeasured> RecallAlone(uint64_t requests);
  // Plays its requests. `begin_at`: WallSeconds(), the same for all workers.
  absl::Status StartPlay(double begin_at);
  absl::StatusOr<PatternMeasured> FinishPlay(double seconds);

 private:
  explicit PatternClient(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  std::unique_ptr<ChildProcess> child_;
  std::string path_, why_;
  uint32_t depth_ = 1;
};

}  // namespace kvkeep::bench
