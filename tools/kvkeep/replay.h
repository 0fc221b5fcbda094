// Replay: plays a request trace through a running daemon as an engine would, and checks every byte.
//
// Each request looks up its whole chain with a lease on the leading run, gets that run, compares it
// with the generator's bytes, puts the rest, and releases the lease. Worker threads take the
// requests in the trace's order; each has its own client, and so its own session.
//
//   auto report = Replay(options, trace, progress);   // blocks until done
//
// While the daemon is away, calls are misses. With `tolerate_restart` the replay waits for it to
// return; otherwise it ends with UNAVAILABLE.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "client/values/types.h"
#include "tiers/policy/trace.h"

namespace kvkeep::tools {

struct ReplayOptions {
  std::string endpoint;
  std::string admin_endpoint;                     // for check_capacity and settle
  std::vector<uint64_t> chunk_sizes = {2 << 20};  // an id has one of them, chosen by hash
  uint64_t seed = 1;                              // of keys, sizes and bytes
  int concurrency = 1;
  bool check_capacity = false;  // poll the daemon's status for used > capacity
  // A request begins when all earlier puts are in G3, so that evictions do not depend on the disk's
  // speed. DEADLINE_EXCEEDED if that takes longer than the timeout.
  bool settle = false;
  client::Deadline settle_timeout{60'000};
  bool tolerate_restart = false;
  // How long a lookup may search for chunks beyond the node (G4); 0: no search. At most 10 s.
  client::Deadline remote_wait{0};
  client::Deadline timeout{5'000};  // of small calls; calls that move bytes get 30 s at least
  client::Deadline restart_timeout{30'000};
  std::string model = "kvkeep-replay";  // of the namespace
  client::PathChoice path = client::PathChoice::kAuto;
};

struct ReplayReport {
  uint64_t requests = 0;
  uint64_t chunk_refs = 0;
  uint64_t leading_hit_chunks = 0;  // chunks of leading runs, delivered whole
  uint64_t g2_hits = 0;             // hits that G2 had at the lookup, even if G3 had them too
  uint64_t g3_hits = 0;
  uint64_t g4_hits = 0;         // hits on their way from beyond the node at the lookup
  uint64_t put_chunks = 0;      // stored
  uint64_t present_chunks = 0;  // puts answered PRESENT
  uint64_t rejected = 0;
  std::map<std::string, uint64_t> rejected_because;  // the same by reason
  std::string first_rejection;                       // its whole message
  uint64_t wrong_bytes = 0;                          // delivered as a hit, but differ from the put
  uint64_t corrupt_chunks = 0;                       // with wrong checksums: never delivered
  // Chunks that were leased and present at the lookup, but no hit, while the daemon was up. A chunk
  // on its way from beyond the node that does not come is a miss.
  uint64_t lost_promises = 0;
  uint64_t unleased_windows = 0;  // got without a lease, as none was granted
  uint64_t unavailable = 0;       // calls that found the daemon away, or past their deadline
  uint64_t failed_calls = 0;      // with any other error
  std::string first_failure;
  uint64_t bytes_got = 0;
  uint64_t bytes_put = 0;
  double get_seconds = 0;  // sum over the threads
  double put_seconds = 0;
  double seconds = 0;                // wall time
  std::vector<double> lookup_us;     // one sample a request
  std::vector<double> get_chunk_us;  // one sample a chunk: its get call's time, shared evenly
  uint64_t status_polls = 0;
  uint64_t capacity_violations = 0;
  std::string first_violation;
  uint64_t resident_chunks_g2 = 0;  // at the end, with check_capacity
  uint64_t resident_chunks_g3 = 0;
  int concurrency = 1;

  void Add(ReplayReport&& other);
  void NoteRejection(const std::string& message);
  double hit_ratio() const {
    return chunk_refs == 0
               ? 0
               : static_cast<double>(leading_hit_chunks) / static_cast<double>(chunk_refs);
  }
  bool good() const { return wrong_bytes == 0 && capacity_violations == 0; }
};

// Returns the percentile at `fraction` (0 to 1) of `samples`, which it sorts; 0 if there are none.
double Percentile(std::vector<double>& samples, double fraction);

using ReplayProgress = absl::AnyInvocable<void(uint64_t requests_done)>;

// Calls `progress` from time to time, from one thread at a time.
absl::StatusOr<ReplayReport> Replay(const ReplayOptions& options,
                                    std::span<const TraceRequest> requests,
                                    ReplayProgress progress);

}  // namespace kvkeep::tools
