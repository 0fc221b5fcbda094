// Sessions: the sessions of a store, with their namespaces and leases.
//
// Owns the sessions (session_table.h) and the leases (leases.h), which calls reach by name. A
// session is found by its token. After a yield a caller has to find it again. The methods are calls
// of store.h, with the same contracts.
//
// The store's lock protects it; a method without STORE_LOCKED takes the lock.
#pragma once

#include <vector>

#include "tiers/base/random.h"
#include "tiers/store/chunks.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/leases.h"
#include "tiers/store/owners.h"
#include "tiers/store/section.h"
#include "tiers/store/served_meter.h"
#include "tiers/store/session_table.h"

namespace kvkeep::store_internal {

class Sessions {
 public:
  // `claims`: each tenant's claim on the sessions. All pointers are borrowed.
  Sessions(const StoreOptions& options, const std::vector<Shares::Claim>& claims,
           const StoreDeps& deps, Chunks* chunks, const Owners* owners, ServedMeter* served,
           EventHub* events);

  absl::StatusOr<SessionToken> Open(const SessionInfo& info);
  void Close(const SessionToken& token, bool revoked);
  absl::StatusOr<NamespaceDigest> OpenNamespace(const SessionToken& token,
                                                const NamespaceSpec& spec);
  absl::StatusOr<TenantId> TenantOf(const SessionToken& token);
  absl::StatusOr<NamespaceSpec> FindNamespace(const SessionToken& token,
                                              const NamespaceDigest& ns);
  uint32_t TokensPerChunk(const NamespaceDigest& ns);
  absl::Status Release(const SessionToken& token, LeaseId lease, uint32_t keep_keys);

  // Ends the hold of one lease entry on its chunk.
  void LetGo(LeaseHolder& holder, const Lease::Entry& entry) STORE_LOCKED;

  SessionTable table STORE_GUARDED;
  LeaseBook leases STORE_GUARDED;

 private:
  void LetGoOfAll(Section& section, LeaseHolder& holder,
                  const std::vector<Lease::Entry>& entries) STORE_LOCKED;

  RandomSource& random_;
  Chunks& chunks_;
  const Owners& owners_;
  ServedMeter& served_;
  EventHub& events_;
};

}  // namespace kvkeep::store_internal
