// LocalLimits: limits on what one client of the local path, and all clients, may hold and ask for.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>

#include "tiers/base/units.h"

namespace kvkeep {

// Enough for a put of the largest message and everything made of it.
inline constexpr uint64_t kLeastMessageBytes = 32 * kMiB;

struct LocalLimits {
  uint32_t max_connections = 1024;             // of one socket
  uint32_t max_puts_in_flight = 64;            // of one session; more are read when one is done
  uint32_t max_put_chunks = 4096;              // of one put
  uint32_t max_put_runs = 65536;               // of one put
  uint32_t max_registrations = 64;             // of one session
  uint64_t max_registered_bytes = kTiB;        // of one session, of its own memory
  uint64_t max_staging_bytes = kGiB;           // of one session
  uint64_t max_all_staging_bytes = 0;          // of all sessions; 0: a quarter of G2
  uint64_t first_staging_bytes = 4 * kMiB;     // what a session begins with; room for a chunk
  uint64_t default_staging_bytes = 64 * kMiB;  // the same before version 6, if chunk sizes vary
  uint32_t max_gpu_registrations = 512;        // of one session
  uint64_t max_gpu_bytes = kTiB;               // registered by one session
  // Limits of all sessions together; each tenant has its part of them (gpu_account.h).
  uint64_t max_all_gpu_registrations = 4096;
  uint64_t max_all_gpu_bytes = 16 * kTiB;
  uint64_t max_all_gpu_copies = 16384;  // of 8 MiB or so
  uint64_t max_gpu_get_bytes = 0;         // of all gets to GPUs under way; 0: a quarter of G2
  uint64_t max_unsent_bytes = 16 * kMiB;  // of replies a client does not read
  // Staging memory is not mapped, but read by calls, which cost more. For vm.overcommit_memory 2:
  // there memory may be missing for a page where a client punched a hole, and a touch of the
  // mapping is SIGBUS.
  bool staging_by_calls = false;
  // The limit of all connections for half messages, puts not done and replies not read. A tenant
  // has its part.
  uint64_t max_message_bytes = 256 * kMiB;
  // A put from staging memory of a few chunks and runs, whose images have at most this many bytes,
  // is copied by the endpoint's thread itself: waking a copy thread, and being woken by it, takes
  // longer. 0: none.
  uint64_t loop_copy_bytes = 80 * kKiB;
  // A client that holds something and answers nothing for this long is revoked. One that leaves a
  // message half sent, or its replies unread, for this long is cut off.
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds handshake_timeout{5'000};
  std::chrono::milliseconds max_gpu_timeout{30'000};  // of one put or get
  // How long the endpoint's thread may poll for requests before it sleeps, while requests follow
  // each other that closely; 0: never.
  std::chrono::microseconds busy_poll{50};

  // Returns the timeout of a put or get that asks for `asked_ms` milliseconds.
  std::chrono::milliseconds GpuTimeout(uint32_t asked_ms) const;

  absl::Status Validate() const;
};

}  // namespace kvkeep
