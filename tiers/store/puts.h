// Puts: the space in G2 that is reserved for puts that are not sealed yet.
//
// Owns the reservations, by number, and accounts of their blocks for each tenant and each session.
// A reservation outlives its session, as its writer may be copying just then: the seal then finds
// the session closed. The pool owns the space: the caller that ends a put gives its extents to a
// chunk, or back to the pool.
//
// Guarantees: each number is given once. The accounts are the sums of the reservations, and a
// session without reservations has no account. Calls nobody. The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

// Space taken for a put that is not sealed yet.
struct PendingPut {
  SessionToken session;
  TenantId tenant;
  Generation generation;
  ExtentList extents;
  uint64_t blocks = 0;
};

class Puts {
 public:
  explicit Puts(size_t tenants) : of_tenant_(tenants) {}

  // Returns the number of the reservation.
  uint64_t Begin(const PendingPut& put);
  // REQUIRES, for both: the reservation was begun and not ended.
  const PendingPut& at(uint64_t reservation) const;
  PendingPut End(uint64_t reservation);

  uint64_t blocks_of(TenantId tenant) const { return of_tenant_[tenant.value()]; }
  uint64_t blocks_of(const SessionToken& session) const;
  // Returns whether a reservation takes `blocks` blocks; for a planted bug (canary.h).
  bool HasOneOf(uint64_t blocks) const;

  void CheckInvariants() const;

 private:
  // Trees, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<uint64_t, PendingPut> puts_;
  absl::btree_map<SessionToken, uint64_t> of_session_;  // blocks; never 0
  std::vector<uint64_t> of_tenant_;                     // blocks, by TenantId
  uint64_t next_ = 1;
};

}  // namespace kvkeep::store_internal
