// The state of a store at one moment: tiers, tenants, devices, sessions and counters. Plain values.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/histogram.h"
#include "tiers/index/index_stats.h"
#include "tiers/io/device_times.h"
#include "tiers/policy/reuse_curve.h"
#include "tiers/store/counters.h"
#include "tiers/store/types.h"

namespace kvkeep {

// Joining: the store reads its index; its chunks are misses, and nothing is written there.
enum class DeviceState : uint8_t { kOk, kDegraded, kReadOnly, kOffline, kJoining };

struct TierSnapshot {
  uint64_t capacity_bytes = 0, used_bytes = 0, chunks = 0;
  uint64_t to_come_bytes = 0;  // of G2: beyond the capacity, built but without memory yet
  uint64_t leased_bytes = 0, reserved_bytes = 0, dirty_bytes = 0;
  // Unbacked: G2's chunks that no other tier has, without a write under way. Waiting: those of them
  // that are written as soon as the dirty budget has room, or a device takes writes.
  uint64_t unbacked_chunks = 0, unbacked_bytes = 0, waiting_chunks = 0, waiting_bytes = 0;
  uint64_t allocations = 0, extents_allocated = 0;

  void Add(const TierSnapshot& other);
};

struct DeviceSnapshot {
  std::string path;
  DeviceState state = DeviceState::kOk;
  std::string message;
  // capacity_bytes is the capacity as set, or the used bytes if those are more, as chunks cannot be
  // evicted yet. built_bytes is the size that the files were made for. directory_bytes is never
  // more.
  uint64_t capacity_bytes = 0, built_bytes = 0, used_bytes = 0, directory_bytes = 0, chunks = 0;
  uint64_t queued_writes = 0;   // entries of the write-back queue
  uint64_t joined_records = 0;  // of its index, read when it joined
  DeviceTimesCounts times;
  IndexStats index;
};

struct SessionSnapshot {
  SessionInfo info;
  uint64_t leases = 0, leased_bytes = 0, reserved_bytes = 0;
  std::chrono::nanoseconds age{0};
};

struct TenantSnapshot {
  std::string name;
  TierSnapshot g2;
  uint64_t g3_used_bytes = 0;
  uint64_t g3_quota_bytes = 0;                         // 0: none
  uint64_t g3_share_bytes = 0;                         // no other tenant takes these
  uint64_t chunks = 0;                                 // in any tier
  uint64_t keys_per_second = 0, bytes_per_second = 0;  // 0: no limit
  TenantCounters counters;
};

// The names of a namespace that somebody has opened since the start. The last one, "other", stands
// for all namespaces without a meter of their own.
struct NamespaceName {
  std::string tenant, model, digest;  // to be shown: printable ASCII
};
struct NamespaceSnapshot {
  std::shared_ptr<const NamespaceName> name;
  double tokens_served = 0;  // of chunks that were handed to readers
};

// The lives of a sample of chunks, one in `one_in`, by tier, G2 first (life_samples.h).
struct LifeSnapshot {
  using Counts = std::array<HistogramCounts, 2>;
  static constexpr HistogramCounts kNone{.bounds = &kAgeBounds};

  uint64_t one_in = 1;
  uint64_t sampled_chunks = 0;           // in a tier now
  Counts lifetime = {kNone, kNone};      // in the tier, of those that were evicted
  Counts idle = {kNone, kNone};          // since somebody asked for them, likewise
  Counts wanted_again = {kNone, kNone};  // from the eviction until somebody asked again
};

// How far the scrub's round is. Chunks that G2 has as well are skipped.
struct ScrubSnapshot {
  bool asked_for = false;  // by Store::ScrubRound; false: rounds follow each other, if at all
  uint64_t looked_at = 0, of = 0;  // places of the chunk table
};

// How long ago, in bytes, the chunks that lookups ask for were used before (reuse_meter.h).
struct ReuseSnapshot {
  ReuseCurve curve;
  uint64_t leading = 0;  // those of curve.wanted that were there, in a leading run
  uint64_t sampled_chunks = 0;
  double sampled_share = 1;
  MonotonicTime measured_for{0};  // since the start, or the last clear of everything
};

struct StoreSnapshot {
  StoreCounters counters;
  TierSnapshot g2, g3;
  std::vector<TenantSnapshot> tenants;  // by TenantId
  std::vector<DeviceSnapshot> devices;
  std::vector<SessionSnapshot> sessions;
  ScrubSnapshot scrub;
  std::optional<RemoteCounters> remote;  // with a source beyond the node
  OfferCounters offers;                  // of nodes that leave the fleet
  // Chunks that are to be written there: they wait, are being written, or could not be written.
  uint64_t remote_writes_left = 0;
  uint64_t remote_removals_left = 0;  // images that are to be removed there
  uint64_t dirty_chunks = 0;
  std::chrono::nanoseconds oldest_dirty_age{0};  // since its write-back was queued
  uint64_t cipher_buffer_bytes = 0;              // buffers that write-backs encrypt into
  bool draining = false;
  std::vector<NamespaceSnapshot> namespaces;
  LifeSnapshot life;
  HistogramCounts lock_hold{.bounds = &kDurationBounds};
  HistogramCounts lock_wait{.bounds = &kDurationBounds};  // before each hold; 0: it was free
  HistogramCounts write_back_age{.bounds = &kAgeBounds};  // from the seal until it is in G3
};

// Chunks leased to, or read by, a session of a tenant that their owner has among its readers.
struct ForeignRead {
  std::shared_ptr<const SessionInfo> reader;  // null: the reads for which there was no entry left
  NamespaceDigest ns;                         // without a reader: of the first of these reads
  TenantId owner;                             // likewise
  uint64_t chunks = 0;
  uint64_t bytes = 0;  // of payload
};

}  // namespace kvkeep
