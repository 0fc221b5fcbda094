// IoCounters: the numbers behind IoEngine::Stats, counted by any thread of an engine.
//
// Each number is right; numbers read together may be a moment apart.
#pragma once

#include <atomic>
#include <cstdint>

#include "tiers/io/io_engine.h"

namespace kvkeep {

struct IoCounters {
  using Counter = std::atomic<uint64_t>;

  Counter reads = 0, writes = 0;
  Counter read_bytes = 0, write_bytes = 0;
  Counter errors = 0;
  Counter short_resumed = 0;
  Counter retried = 0;
  Counter fixed_buffer_ios = 0;
  Counter plain_buffer_ios = 0;
  Counter buffer_registration_failures = 0;
  Counter shared_buffers = 0;
  Counter buffered_opens = 0;
  Counter in_flight = 0, queued = 0;

  IoEngine::Stats Snapshot() const {
    return {.reads = reads,
            .writes = writes,
            .read_bytes = read_bytes,
            .write_bytes = write_bytes,
            .errors = errors,
            .short_resumed = short_resumed,
            .retried = retried,
            .fixed_buffer_ios = fixed_buffer_ios,
            .plain_buffer_ios = plain_buffer_ios,
            .buffer_registration_failures = buffer_registration_failures,
            .shared_buffers = shared_buffers,
            .buffered_opens = buffered_opens,
            .in_flight = in_flight,
            .queued = queued};
  }
};

}  // namespace kvkeep
