// PutPlan: a put request, taken apart and checked whole before anything is done: every run lies in
// memory that is there, every chunk is the sum of its runs. What may be stored where is for the
// store to say.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "proto/local/protocol.h"
#include "server/local/session_memory.h"

namespace kvkeep {

class PutPlan {
 public:
  // InvalidArgument names the field.
  static absl::StatusOr<PutPlan> Parse(std::span<const std::byte> body, const LocalLimits& limits,
                                       const SessionMemory& memory);

  const NamespaceDigest& ns() const { return ns_; }
  const std::vector<local::PutChunk>& chunks() const { return chunks_; }
  std::span<const std::byte> tail(size_t chunk) const;

  // Copies payload bytes of a chunk from its runs, each read once. OutOfRange: see ClientMemory.
  absl::Status ReadPayload(size_t chunk, uint64_t offset, std::span<std::byte> to) const;
  // Lets go of the client's memory: nothing is read any more.
  void DropMemory() { memories_.clear(); }

 private:
  absl::Status CheckChunks(uint64_t tail_bytes);
  absl::Status AddRuns(std::span<const local::PutRun> runs, const SessionMemory& memory);

  struct Run {
    uint32_t memory = 0;  // index into memories_
    uint64_t offset = 0;
  };
  NamespaceDigest ns_;
  std::vector<local::PutChunk> chunks_;
  std::vector<Run> runs_;
  std::vector<uint64_t> starts_;  // of every run in the row of all runs; one more: the end
  std::vector<uint64_t> tail_starts_;
  std::vector<std::byte> tails_;
  std::vector<std::shared_ptr<const ClientMemory>> memories_;
};

}  // namespace kvkeep
