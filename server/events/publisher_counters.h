// Counters of all publishers, since the start; the last two are gauges. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

struct PublisherCounters {
  std::atomic<uint64_t> messages{0}, stored_blocks{0}, removed_blocks{0}, announcements{0};
  // Chunks whose metadata could not be read, names no tokens, or names more blocks than possible.
  std::atomic<uint64_t> untold_chunks{0};
  std::atomic<uint64_t> replays{0};
  std::atomic<uint64_t> dropped_subscribers{0};  // because too much waited for all of them
  std::atomic<uint64_t> subscribers{0};
  std::atomic<uint64_t> queued_bytes{0};  // waiting for subscribers
};

}  // namespace kvkeep
