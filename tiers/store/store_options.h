// StoreOptions: policies, limits and tenants of a store. Validated once, by Store::Create.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tiers/base/strong_int.h"
#include "tiers/base/token_bucket.h"
#include "tiers/base/units.h"
#include "tiers/store/events.h"

namespace kvkeep {

// A tenant's index in StoreOptions::tenants. A session's tenant comes from its socket or
// certificate, never from the client's words.
using TenantId = StrongInt<struct TenantIdTag, uint32_t>;

// A tenant owns namespaces and whole segments of the arena, which no other tenant uses. Its name is
// in the digests of its namespaces, so that no other tenant can name its chunks.
struct TenantOptions {
  std::string name;  // empty: the default tenant, whose digests are those of a node without tenants
  uint64_t g2_segments = 0;
  // The most that its chunks may hold of G3, on all devices together. 0: no quota. Then it shares
  // what the others' quotas leave, in proportion to its part of G2.
  uint64_t g3_quota_bytes = 0;
  // Limits for its sessions together; 0: no limit. See Store.
  uint64_t keys_per_second = 0;
  uint64_t bytes_per_second = 0;
  uint64_t max_leased_bytes = 0;  // of its leases; 0: its share of StoreOptions::max_leased_bytes
  // Other tenants that may read its chunks, but not write. They name it in NamespaceSpec::tenant.
  std::vector<TenantId> readers = {};

  // Returns its name, or "default" if it has none.
  std::string shown_name() const { return name.empty() ? "default" : name; }

  // Returns the tag that the digests of all of its namespaces begin with.
  static uint32_t Tag(const std::string& name);
};

struct StoreOptions {
  std::string g2_policy = "lru";
  std::string g3_policy = "lru";
  // Decides which chunks of G2 are written to G3 (admission_policy.h). `durable` puts always are,
  // and with write_budget they are charged, too. Each tenant has a part of the budget, as of the
  // arena.
  std::string g3_admission = "all";
  uint64_t g3_write_bytes_per_second = 0;  // of all devices together; above 0 with write_budget
  uint64_t dirty_budget_bytes = 0;         // 0: a quarter of the arena
  uint64_t max_chunks = 4 << 20;           // entries of the chunk table, 1 to 2.8 billion
  uint32_t max_keys_per_call = 65536;      // keys x parts of one call
  uint32_t max_sessions = 1024;
  uint32_t max_leases_per_session = 4096;
  uint64_t max_leased_bytes = 0;    // all sessions; 0: half of the arena
  uint64_t max_reserved_bytes = 0;  // puts in progress, all sessions; 0: a quarter of the arena
  uint64_t max_device_reads_in_flight_bytes = 64 * kMiB;   // each device
  uint64_t max_device_writes_in_flight_bytes = 64 * kMiB;  // each device
  // Beyond the node a connection is slow and a request begins late, so many are needed at once.
  // With images of 2 MiB this allows 48 requests, and leaves a quarter of the connections for
  // searches and writes.
  uint64_t max_remote_reads_in_flight_bytes = 96 * kMiB;
  uint64_t scrub_bytes_per_second = 0;                     // of all devices together; 0: never
  // Images are written beyond the node at this rate, if something lies there; 0: none.
  uint64_t remote_write_bytes_per_second = TokenBucket::kMaxPerSecond;
  std::chrono::nanoseconds remote_lifetime{0};  // of images there; 0: they do not expire
  bool remote_second_use = false;  // writes chunks that a lookup finds after their put; else all
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint32_t life_sample_one_in = 64;         // chunks whose life is followed; a power of two
  uint64_t g2_capacity_bytes = 0;           // the part of the arena that may be used; 0: all
  std::vector<uint64_t> g3_capacity_bytes;  // of each device's directory; empty: all
  EventLimits events;
  // Indexed by TenantId, in the order of their segments. Empty: one tenant with the whole arena.
  // Limits in bytes above are of all tenants together; each has its share by capacity.
  std::vector<TenantOptions> tenants;

  absl::Status Validate() const;
  // Returns the largest payload that a chunk of the tenant can have, whatever its metadata is, by
  // its part of G2 and its limits of reserved and leased bytes. REQUIRES: options as Store::options
  // returns them.
  uint64_t MaxPayloadBytes(TenantId tenant) const;
};

}  // namespace kvkeep
