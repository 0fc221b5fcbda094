// LeaseBook: what each session leases, and what that takes of what its tenant's leases may hold.
//
// Owns the leases of every open session, found by number or by the request that asked for them,
// and the accounts of leases in the pools: what is lent, what is borrowed (G2Pool). Each entry that
// is held is one pin of its chunk: the caller pins after Hold and unpins after LetGo. A tenant is
// one trust domain: its sessions share what its leases may hold as they come.
//
// A LeaseHolder outlives its session where a lease is still being granted or worked off: the
// callers share it. Reads the table, changes no chunk. The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/store/account.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/counters.h"
#include "tiers/store/g2_pool.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct Lease {
  struct Entry {
    ChunkSlot slot;
    uint32_t key_index;  // within the lookup
    uint32_t chunk;      // key index * parts + part index
  };
  std::vector<Entry> entries;  // in lookup order
  uint64_t client_request_id = 0;
  uint32_t keys = 0;  // leading keys covered
  uint64_t bytes = 0;
  bool paid = false;  // its bytes were charged when it was granted: reads of it are free
  mutable size_t read_last = 0;  // where a read found its entry: the next one's is near, mostly
};

// One session that leases, and its leases by LeaseId.
class LeaseHolder {
 public:
  explicit LeaseHolder(TenantId tenant) : tenant(tenant) {}

  const auto& leases() const { return leases_; }
  uint64_t leased_bytes() const { return leased_bytes_; }
  // Null: it has no such lease.
  const Lease* Find(LeaseId id) const;
  // 0: no lease was granted to that request, or it is gone. None ever is to request 0.
  LeaseId FindRequest(uint64_t client_request_id) const;
  void File(LeaseId id, Lease lease);
  // REQUIRES of all: it has the lease.
  Lease Take(LeaseId id);
  void LimitKeys(LeaseId id, uint32_t keys);
  // Its last entry, whose chunk's image has so many bytes. REQUIRES: it has one.
  Lease::Entry TakeLast(LeaseId id, uint64_t bytes);

  const TenantId tenant;

 private:
  Lease& at(LeaseId id);

  Account leased_bytes_;
  // Trees: one that grows moves a node, and takes memory for one of every few entries.
  absl::btree_map<uint64_t, Lease> leases_;        // by LeaseId
  absl::btree_map<uint64_t, LeaseId> by_request_;  // by client_request_id
};

class LeaseBook {
 public:
  using Pools = std::vector<std::unique_ptr<G2Pool>>;  // by TenantId

  // All outlive it. `most_leases`: of a session.
  LeaseBook(uint32_t most_leases, const ChunkTable* table, const Pools* pools,
            StoreCounters* counters)
      : most_leases_(most_leases), table_(*table), pools_(*pools), counters_(*counters) {}

  void SetMostLeases(uint32_t most_leases) { most_leases_ = most_leases; }

  // ---- sessions
  void Open(const SessionToken& session, TenantId tenant);
  // Nobody finds its leases any more; what they hold is to be let go of. REQUIRES of both: open.
  std::shared_ptr<LeaseHolder> Close(const SessionToken& session, bool revoked);
  const std::shared_ptr<LeaseHolder>& of(const SessionToken& session) const;
  // Null when the session is not open, or has no such lease.
  const Lease* Find(const SessionToken& session, LeaseId id) const;

  // ---- leases
  // ResourceExhausted when it has as many leases as a session may have.
  absl::Status CheckRoom(const LeaseHolder& holder) const;
  // Whether it may hold the chunk once more, by the limits of both tenants.
  bool MayHold(const LeaseHolder& holder, ChunkSlot slot) const;
  void Hold(LeaseHolder& holder, ChunkSlot slot);
  void LetGo(LeaseHolder& holder, ChunkSlot slot);
  // The lease, whose entries are held, is from now on the session's.
  LeaseId File(LeaseHolder& holder, Lease lease);

  // The accounts in the pools and the pins are at least what leases hold: more is in the making, or
  // of a session that has ended.
  void CheckInvariants() const;

 private:
  struct Held;  // by leases, as CheckInvariants counts it
  void CheckHolder(const LeaseHolder& holder, Held& held) const;
  G2Pool& pool(TenantId tenant) const;

  uint32_t most_leases_;
  const ChunkTable& table_;
  const Pools& pools_;
  StoreCounters& counters_;
  // A tree: a hash map that grows moves all of its entries under the lock.
  absl::btree_map<SessionToken, std::shared_ptr<LeaseHolder>> holders_;
  uint64_t next_ = 1;
};

}  // namespace kvkeep::store_internal
