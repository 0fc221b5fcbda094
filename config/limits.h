// LimitsConfig: limits on what clients may take of the daemon. Plain values, part of Config.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/units.h"

namespace kvkeep {

struct LimitsConfig {
  uint64_t max_chunks = 4'000'000;
  uint64_t keys_per_call = 65536;
  uint64_t sessions = 1024;
  uint64_t leases_per_session = 4096;
  double leased_bytes = 0.5;             // of G2's capacity
  double reserved_bytes = 0.25;          // of G2's capacity
  uint64_t connections = 4096;           // of one socket, or by TCP
  uint64_t connections_per_address = 0;  // by TCP; 0: a quarter of them, unless on loopback
  uint64_t receive_memory_bytes = 512 * kMiB;
  uint64_t call_memory_bytes = 128 * kMiB;
  uint64_t resets_per_second = 1000;  // of one user at a socket, or one address; 0: no limit
  double pinned_bytes = 0.5;  // of G2's capacity
  std::chrono::milliseconds stall_timeout{30'000};
  std::chrono::milliseconds peer_timeout{30'000};
  uint64_t staging_per_session_bytes = 1 * kGiB, local_memory_bytes = 256 * kMiB;
  double staging = 0.25;  // of G2's capacity, and on top of it
  std::chrono::milliseconds session_grace{10'000};
  uint64_t busy_poll_us = 50;
  bool operator==(const LimitsConfig&) const = default;
};

}  // namespace kvkeep
