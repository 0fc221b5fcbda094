// PatternRequest: a pattern of load from the command line, and the jobs that it makes. Plain
// values; pure functions.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/client/commands.h"
#include "tools/bench/client/pattern.h"

namespace kvkeep::bench {

// The command line's options. 0: the pattern's own value.
struct PatternRequest {
  std::string name;           // empty: no pattern
  std::vector<double> rates;  // requests a second of all users together; a run for each
  double seconds = 0;
  uint32_t users = 0;
  uint32_t workers = 0;
  uint32_t depth = 0;  // requests of a worker at a time
  uint32_t get_chunks = 8;
  uint64_t seed = 1;
  bool quick = false;  // everything small: to see that it works, not how fast it is

  // A chunk is a model's KV of tokens_per_chunk tokens; recomputing it is that model's prefill.
  std::string model = "llama-3.1-8b", gpu = "h100";
  double kv_bytes_per_token = 0, prefill_tokens_per_second = 0;  // instead of the model's
  uint64_t tokens_per_chunk = 0;

  // sessions
  uint32_t rounds = 10;
  uint64_t system_prompt_tokens = 0, history_tokens = 0;

  KVKEEP_FIELDS(name, rates, seconds, users, workers, depth, get_chunks, seed, quick, model, gpu,
                kv_bytes_per_token, prefill_tokens_per_second, tokens_per_chunk, rounds,
                system_prompt_tokens, history_tokens)
};

struct PatternModel {
  double kv_bytes_per_token = 0;
  double prefill_tokens_per_second = 0;

  KVKEEP_FIELDS(kv_bytes_per_token, prefill_tokens_per_second)
};
// InvalidArgument: no such model or GPU.
absl::StatusOr<PatternModel> ModelOf(const PatternRequest& request);

// The load that is played at one rate.
struct PatternJob {
  PatternOptions pattern;
  uint64_t chunk_bytes = 0;
  uint32_t get_chunks = 8;                 // of a call over gRPC
  uint32_t depth = 16;                     // requests of a worker at a time
  double recompute_seconds_per_chunk = 0;  // 0: not known

  template <typename Visit, typename... S>
  static void Fields(Visit visit, S&... s) {
    PatternOptions::Fields(visit, s.pattern...);
    visit("chunk_bytes", s.chunk_bytes...);
    visit("get_chunks", s.get_chunks...);
    visit("depth", s.depth...);
    visit("recompute_seconds_per_chunk", s.recompute_seconds_per_chunk...);
  }
};

// Returns a job for each rate. InvalidArgument names the option.
absl::StatusOr<std::vector<PatternJob>> JobsOf(const PatternRequest& request);

// Returns the bytes that `chunks` of the pattern take in a tier, images' headers included.
uint64_t WorkingSetBytes(const PatternJob& job, uint64_t chunks);

// "pattern jobs" {request: PatternRequest}: {model: PatternModel, jobs: [{job: PatternJob, pattern:
// for a report, closed_loop, asked_chunks of all prompts, chunks_before, distinct_chunks,
// working_set_bytes, chunk_in_tier_bytes}]}.
void AddPatternRequestCommands(Commands* commands);

}  // namespace kvkeep::bench
