// SessionLeases: the progress words of a session's leased chunks that were still on their way.
// Words go back with their lease.
//
// The store is the authority on leases; this follows it. One thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "server/local/chunk_arrival.h"
#include "server/local/context.h"
#include "tiers/store/types.h"

namespace kvkeep {

class SessionLeases {
 public:
  SessionLeases(std::shared_ptr<const LocalContext> context,
                std::shared_ptr<ProgressMemory> progress);
  ~SessionLeases();

  bool empty() const { return leases_.empty(); }
  bool contains(LeaseId lease) const { return leases_.contains(lease.value()); }

  // Notes a lease that the store granted, or granted earlier to the same request. REQUIRES: the
  // first time, `granted` has its places.
  void Note(const LookupResult& granted, size_t parts);
  // Returns the progress word of a chunk in a noted lease that was not readable; the same chunk has
  // the same word. ResourceExhausted when there is no word left.
  absl::StatusOr<uint32_t> WordOf(const SessionToken& session, LeaseId lease, const ChunkId& id,
                                  const ChunkPlace& place, bool transient);
  // Ends the lease of chunks whose keys are at `keep_keys` or later.
  void Release(LeaseId lease, uint32_t keep_keys);
  // Ends all leases.
  void End();

 private:
  struct Arriving {
    uint32_t chunk = 0;  // key index * parts + part index
    uint32_t word = 0;
    std::shared_ptr<ChunkArrival> arrival;
  };
  struct Lease {
    uint32_t first_key = 0;  // the lowest with a leased chunk
    uint32_t parts = 1;
    std::vector<Arriving> arriving;  // by chunk
  };

  void Forget(const Arriving& arriving);
  bool IsAt(const ChunkReader& reader, const ChunkPlace& place) const;

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<ProgressMemory> progress_;
  absl::flat_hash_map<uint64_t, Lease> leases_;
};

}  // namespace kvkeep
