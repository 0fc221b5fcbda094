// LeaseBook: the leases of each session, and how much of its tenant's limit they use.
//
// Owns the leases of every open session. A lease is found by its number or by the request that
// asked for it. Owns the accounts of leases in the pools, too: lent and borrowed blocks (G2Pool).
// Each entry that is held is one pin of its chunk: the caller pins after Hold and unpins after
// LetGo. A tenant is one trust domain: its sessions share its limit, first come, first served.
//
// A LeaseHolder outlives its session while a lease is still being granted or given back; the
// callers that do this share it. Reads the table, changes no chunk. The store's lock protects it.
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
  bool paid = false;  // its bytes were charged when it was granted, so reads of it are free
  mutable size_t read_last = 0;  // where the last read found its entry; the next is mostly near
};

// A session, with its leases.
class LeaseHolder {
 public:
  explicit LeaseHolder(TenantId tenant) : tenant(tenant) {}

  const auto& leases() const { return leases_; }
  uint64_t leased_bytes() const { return leased_bytes_; }
  // Returns the lease; null: the session has no such lease.
  const Lease* Find(LeaseId id) const;
  // Returns the lease that was granted to the request. 0: none was, or it is gone. Request 0 has no
  // lease.
  LeaseId FindRequest(uint64_t client_request_id) const;
  void File(LeaseId id, Lease lease);
  // REQUIRES, for these three: the session has the lease.
  Lease Take(LeaseId id);
  void LimitKeys(LeaseId id, uint32_t keys);
  // Takes the last entry from the lease. `bytes`: of the image of the entry's chunk. REQUIRES: the
  // lease has an entry.
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

  // All outlive it. `most_leases`: how many leases a session may have.
  LeaseBook(uint32_t most_leases, const ChunkTable* table, const Pools* pools,
            StoreCounters* counters)
      : most_leases_(most_leases), table_(*table), pools_(*pools), counters_(*counters) {}

  void SetMostLeases(uint32_t most_leases) { most_leases_ = most_leases; }

  // ---- sessions
  void Open(const SessionToken& session, TenantId tenant);
  // Removes the session. The caller has to let go of the chunks that its leases hold. REQUIRES, for
  // Close and `of`: the session is open.
  std::shared_ptr<LeaseHolder> Close(const SessionToken& session, bool revoked);
  const std::shared_ptr<LeaseHolder>& of(const SessionToken& session) const;
  // Returns the lease; null: the session is not open, or has no such lease.
  const Lease* Find(const SessionToken& session, LeaseId id) const;

  // ---- leases
  // Returns ResourceExhausted if the session has as many leases as it may have.
  absl::Status CheckRoom(const LeaseHolder& holder) const;
  // Returns whether the session may hold the chunk once more, by the limits of its own tenant and
  // of the chunk's.
  bool MayHold(const LeaseHolder& holder, ChunkSlot slot) const;
  void Hold(LeaseHolder& holder, ChunkSlot slot);
  void LetGo(LeaseHolder& holder, ChunkSlot slot);
  // Gives the lease, whose entries are held, to the session. Returns its number.
  LeaseId File(LeaseHolder& holder, Lease lease);

  // Checks that the accounts in the pools and the pins are at least what the leases hold. They may
  // be more: for leases that are being granted, or sessions that have ended.
  void CheckInvariants() const;

 private:
  struct Held;  // what CheckInvariants counts
  void CheckHolder(const LeaseHolder& holder, Held& held) const;
  G2Pool& pool(TenantId tenant) const;

  uint32_t most_leases_;
  const ChunkTable& table_;
  const Pools& pools_;
  StoreCounters& counters_;
  // A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<SessionToken, std::shared_ptr<LeaseHolder>> holders_;
  uint64_t next_ = 1;
};

}  // namespace kvkeep::store_internal
