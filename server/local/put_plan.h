// PutPlan: a parsed put request, checked whole before anything is done: every run lies in memory
// that exists, and every chunk is the sum of its runs. The store decides what may be stored.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/local/protocol.h"
#include "server/local/run_table.h"
#include "server/local/session_gpu.h"
#include "server/local/session_memory.h"
#include "tiers/base/clock.h"

namespace kvkeep {

class PutPlan {
 public:
  // Parses the body of a put of any kind: Put, PutUntil, PutInParts, PutFromGpu, PutFromGpuUntil.
  // InvalidArgument names the field.
  static absl::StatusOr<PutPlan> Parse(local::Kind kind, std::span<const std::byte> body,
                                       const LocalLimits& limits, const SessionMemory& memory,
                                       const SessionGpu& gpu);

  const NamespaceDigest& ns() const { return ns_; }
  const std::vector<local::PutChunk>& chunks() const { return chunks_; }
  std::span<const std::byte> tail(size_t chunk) const;

  // Returns whether the client still writes its only chunk.
  bool in_parts() const { return filled_word_.has_value(); }
  // Returns whether all of it lies in staging memory.
  bool in_staging() const { return in_staging_; }
  // Return the offset of the word that says how many bytes are there, and its memory. REQUIRES:
  // in_parts(); for staging(): before DropMemory.
  uint64_t filled_word() const { return *filled_word_; }
  std::shared_ptr<const StagingMemory> staging() const { return staging_; }

  // Returns the runs to copy from a GPU within timeout(); null: the payloads are in host memory.
  const GpuRuns* gpu() const { return gpu_.has_value() ? &*gpu_ : nullptr; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Returns the time until which bytes may be read to be stored; MonotonicTime::max(): any.
  MonotonicTime until() const { return until_; }
  // DeadlineExceeded: until() has passed, so the source may have been written again.
  absl::Status CheckInTime(const Clock& clock) const;

  // Gives payload bytes of a chunk, which the client may write meanwhile. OutOfRange: see
  // ClientMemory. REQUIRES: not from a GPU.
  using ReadBy = absl::Status (ClientMemory::*)(uint64_t, uint64_t, ClientMemory::Give) const;
  absl::Status ReadPayload(size_t chunk, uint64_t offset, uint64_t bytes, ReadBy read,
                           ClientMemory::Give give) const;
  // Lets go of the client's memory: nothing is read any more.
  void DropMemory() {
    memories_.clear();
    staging_ = nullptr;
    if (gpu_.has_value()) gpu_->Drop();
  }

 private:
  template <typename Request, typename Run>
  absl::Status Read(std::span<const std::byte> body, const char* name, const LocalLimits& limits,
                    Request* request, std::vector<Run>* runs);
  template <typename Request>
  absl::Status ReadHost(std::span<const std::byte> body, const char* name,
                        const LocalLimits& limits, const SessionMemory& memory, Request* request);
  template <typename Request>
  absl::Status ReadGpu(std::span<const std::byte> body, const char* name,
                       const LocalLimits& limits, const SessionGpu& memory, Request* request);
  absl::Status SetUntil(uint64_t deadline_ns);
  absl::Status SetParts(const local::PutInParts& request, const SessionMemory& memory);
  absl::Status CheckChunks(const RunTable& table);
  absl::Status AddRuns(std::span<const local::PutRun> runs, const SessionMemory& memory);

  NamespaceDigest ns_;
  std::vector<local::PutChunk> chunks_;
  RunTable runs_;  // in memories_
  bool in_staging_ = false;
  std::optional<uint64_t> filled_word_;  // its offset in staging_
  std::shared_ptr<const StagingMemory> staging_;
  std::optional<GpuRuns> gpu_;
  std::chrono::milliseconds timeout_{0};
  MonotonicTime until_ = MonotonicTime::max();
  std::vector<uint64_t> tail_starts_;
  std::vector<std::byte> tails_;
  std::vector<std::shared_ptr<const ClientMemory>> memories_;
};

}  // namespace kvkeep
