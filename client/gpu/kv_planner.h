// KvPlanner: turns a chunk's tokens, by an engine's block table, into the fewest runs of registered
// memory. Pure: it knows numbers, no driver and no memory.
//
//   KvPlanner planner = KvPlanner::Make({.layout = KvLayout::Dense(format, shape,
//   tensors)}).value();
//   // Chunk 3 of a prompt, of 256 tokens:
//   auto runs = planner.Plan({.block_table = table, .first_token = 3 * 256, .tokens = 256});
//
// The runs, one after the other, are the chunk's payload, in one of two orders. kMemory is the
// memory's order, which gives the longest runs; such a payload is of use only to the same layout,
// so name that in NamespaceSpec::layout. kCanonical is [2][layers][tokens][heads x dim] for every
// layout, at the price of shorter runs.
//
// Runs that are adjacent in memory and in the payload are joined. All checks are overflow-safe: a
// wrong table or range is INVALID_ARGUMENT. Thread-safe, as it is constant.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/gpu/gpu_run.h"
#include "client/gpu/kv_layout.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

enum class KvOrder { kMemory, kCanonical };

struct KvPlannerOptions {
  KvLayout layout;
  KvOrder order = KvOrder::kMemory;
  size_t max_runs = 65536;                      // of one chunk
  uint64_t max_chunk_bytes = kMaxPayloadBytes;  // of one chunk

  absl::Status Validate() const;
};

// Tokens of one sequence. Token t lies in block block_table[t / BS], slot t % BS.
struct KvTokens {
  std::span<const uint32_t> block_table;
  uint64_t first_token = 0;
  uint64_t tokens = 0;
};

class KvPlanner {
 public:
  static absl::StatusOr<KvPlanner> Make(KvPlannerOptions options);

  // Returns the payload bytes of one token: every layer's K and V.
  uint64_t bytes_per_token() const { return bytes_per_token_; }
  // RESOURCE_EXHAUSTED: more runs than max_runs.
  absl::StatusOr<std::vector<GpuRun>> Plan(const KvTokens& what) const;

 private:
  struct Part;
  struct Position;
  class Output;

  KvPlanner(KvPlannerOptions options, uint64_t bytes_per_token);
  absl::StatusOr<std::vector<Part>> Parts(const KvTokens& what) const;
  void Emit(size_t level, const Position& at, Output* out) const;
  uint64_t InOnePiece(size_t level, uint64_t slots) const;

  KvPlannerOptions options_;
  std::array<KvAxis, kKvAxes> order_;  // of the payload
  uint64_t bytes_per_token_;
};

}  // namespace kvkeep::client
