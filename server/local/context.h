// State that every connection of the local path shares: the store, the threads, limits and
// counters.
//
// Constant after construction; what it points to is thread-safe. Work that outlives its connection
// (a copy, a wait for stable storage) keeps it alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/gpu/gpu_path.h"
#include "server/local/counters.h"
#include "server/local/limits.h"
#include "server/requests/request_times.h"
#include "server/sockets/descriptor_closer.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/store/store.h"

namespace kvkeep {

struct PeerScratch;  // peer_scratch.h

struct LocalContext {
  Store* store = nullptr;
  Arena* arena = nullptr;
  Executor* copy_executor = nullptr;  // copies puts, prepares staging memory
  // Runs tasks on the thread that owns the connections.
  std::shared_ptr<Executor> loop;
  LocalCounters* counters = nullptr;
  GpuPath* gpu = nullptr;                // null: there is none
  const Clock* clock = nullptr;          // of the deadlines of puts and gets
  RequestTimes* times = nullptr;         // null: not noted
  std::shared_ptr<PeerScratch> scratch;  // of the loop's thread
  LocalLimits limits;
  std::string version;
  std::function<uint32_t()> serving_state;  // of kvkeep.v1.ServingState
};

// The staging memory that one tenant's sessions have, and its limit. Thread-safe.
struct StagingAccount {
  explicit StagingAccount(uint64_t most) : max_bytes(most) {}
  const uint64_t max_bytes;
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> areas{0};  // sessions that have some
};

// A tenant's part of the arena: segments [first, first + count).
struct SegmentRange {
  uint32_t first = 0;
  uint32_t count = UINT32_MAX;  // cut at the arena's end

  SegmentRange CutAt(uint32_t end) const {
    const uint32_t from = first < end ? first : end;
    return {.first = from, .count = count < end - from ? count : end - from};
  }
};

}  // namespace kvkeep
