// What every connection of the local path shares: the store, the threads, limits and counters.
//
// Constant after construction; what it points to is thread-safe. Work that outlives its connection
// (a copy, a wait for stable storage) keeps it alive.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/local/counters.h"
#include "tiers/base/executor.h"
#include "tiers/store/store.h"

namespace kvkeep {

struct LocalLimits {
  uint32_t max_connections = 1024;             // all sockets together
  uint32_t max_puts_in_flight = 64;            // of one session; more are read when one is done
  uint32_t max_put_chunks = 4096;              // of one put
  uint32_t max_put_runs = 65536;               // of one put
  uint32_t max_registrations = 64;             // of one session
  uint64_t max_staging_bytes = kGiB;           // of one session; registered memory as much again
  uint64_t max_all_staging_bytes = 0;          // of all sessions; 0: a quarter of G2
  uint64_t default_staging_bytes = 64 * kMiB;  // asked for with 0, sizes vary
  uint64_t max_unsent_bytes = 16 * kMiB;       // of replies a client does not read
  // A client that holds something and answers nothing for this long is revoked.
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds handshake_timeout{5'000};

  absl::Status Validate() const;
};

struct LocalContext {
  Store* store = nullptr;
  Arena* arena = nullptr;
  Executor* copy_executor = nullptr;  // copies puts, prepares staging memory
  // Runs tasks on the thread that owns the connections.
  std::shared_ptr<Executor> loop;
  LocalCounters* counters = nullptr;
  LocalLimits limits;
  std::string version;
  std::function<uint32_t()> serving_state;  // of kvkeep.v1.ServingState
};

// A tenant's part of the arena: segments [first, first + count).
struct SegmentRange {
  uint32_t first = 0;
  uint32_t count = UINT32_MAX;  // cut at the arena's end
};

}  // namespace kvkeep
