// Results of a client's calls: the callback that takes them, a lookup's answer, counts of calls.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/values/lease.h"
#include "client/values/types.h"

namespace kvkeep::client {

template <typename T>
using Callback = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;
using DoneCallback = absl::AnyInvocable<void(absl::Status) &&>;

struct LookupResult {
  uint32_t leading_keys = 0;  // keys from the head with all of the parts asked for
  // Keys whose chunks are leased. Less than leading_keys when the promise did not fit: get these,
  // release, look the rest up again.
  uint32_t leased_keys = 0;
  // Estimated time until the leading keys are all readable in DRAM; 0: they are, or the daemon is
  // older than that answer.
  uint32_t promotion_us = 0;
  // With LookupOptions::remote_wait: keys after the leading ones that are on their way from beyond
  // the node, and the estimated time until they are in DRAM. They are leased like the leading ones;
  // a chunk that does not come is a miss for a get.
  uint32_t remote_keys = 0;
  uint32_t remote_us = 0;
  bool remote_asked = false;  // false: no search was worth it, or possible
  Lease lease;

  // Return whether a chunk is in DRAM or on NVMe: of keys[key], and the `part`-th part asked for.
  bool in_g2(size_t key, size_t part = 0) const { return Bit(g2_bits, key, part); }
  bool in_g3(size_t key, size_t part = 0) const { return Bit(g3_bits, key, part); }
  bool present(size_t key, size_t part = 0) const { return in_g2(key, part) || in_g3(key, part); }
  bool coming(size_t key, size_t part = 0) const { return Bit(remote_bits, key, part); }

  size_t row_bytes = 0;  // per key: ceil(parts / 8); bit p, least significant first, is part p
  std::string g2_bits, g3_bits, remote_bits;

 private:
  bool Bit(const std::string& bits, size_t key, size_t part) const {
    const size_t at = key * row_bytes + part / 8;
    return at < bits.size() && (static_cast<uint8_t>(bits[at]) >> (part % 8) & 1) != 0;
  }
};

struct ClientStats {
  uint64_t sessions_opened = 0;  // more than one: the daemon was away in between
  uint64_t calls = 0;
  uint64_t failed_fast = 0;     // calls refused because the daemon was known to be away
  uint64_t corrupt_chunks = 0;  // dropped here: bytes did not match their checksums
  uint64_t bytes_received = 0;  // payload delivered by gets
  uint64_t bytes_sent = 0;      // payload of finished puts
  uint64_t late_slices = 0;     // puts whose memory gRPC held after the end of the call
  // Sessions that this client ended: unknown to the daemon, or with memory that gRPC held.
  uint64_t sessions_torn_down = 0;
  uint64_t bulk_fallbacks = 0;    // gets and puts by gRPC because the bulk door did not answer
  uint64_t leases_reclaimed = 0;  // granted by a lookup whose reply was lost, then given back
};

}  // namespace kvkeep::client
