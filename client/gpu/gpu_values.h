// Arguments and counts of the GPU path's calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/gpu/gpu_run.h"
#include "client/gpu/gpu_use.h"
#include "client/values/calls.h"
#include "client/values/types.h"
#include "tiers/base/key.h"

namespace kvkeep::client {

struct GpuPutChunk {
  ChunkKey key;
  uint32_t part = 0;
  std::vector<GpuRun> runs;  // the payload, in order
  std::optional<ChunkKey> parent_key;
  std::string metadata;  // at most 16 KiB
};

struct GpuPutOptions {
  PutOptions put;
  std::shared_ptr<GpuUse> use;  // of this put, perhaps of others too; may be null
};

struct GpuGetChunk {
  ChunkKey key;
  uint32_t part = 0;
  // Their sum is the payload's size, which the caller has to know. Some may be of no region.
  std::vector<GpuRun> runs;
};

struct GpuGetOptions {
  const Lease* lease = nullptr;  // chunks that it holds are found, even if deleted since
  bool transient = false;        // chunks that come from G3 need not stay in G2
  Deadline deadline{0};
  std::shared_ptr<GpuUse> use;  // of this get, perhaps of others too; may be null
};

// Counts of one client, since it was made.
struct GpuStats {
  uint64_t registered = 0;        // at first
  uint64_t registered_again = 0;  // with a new session
  uint64_t refused = 0;           // registrations, at first and again
  uint64_t unanswered = 0;        // puts and gets that ended without the daemon's answer
  uint64_t bytes_put = 0;         // of chunks that were stored, or were there
  uint64_t bytes_got = 0;
};

}  // namespace kvkeep::client
