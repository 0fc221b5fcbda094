// SessionTable: the open sessions, the namespaces that each has open, and its rights and rates.
//
// Owns the sessions, the number of sessions that each tenant may have, and the rates of each
// tenant, which its sessions share (rates.h). A session is found by its token. After a yield a
// caller has to find it again, as it may have been closed.
//
// Guarantees: a tenant has at most its part of all sessions, and may have at least one. A session
// has only namespaces open that its tenant owns or may read. A check that fails because a right is
// missing is counted. Calls only Owners and the clock. The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/store/counters.h"
#include "tiers/store/owners.h"
#include "tiers/store/rates.h"
#include "tiers/store/shares.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct Session {
  TenantId tenant() const { return info->tenant; }
  bool HasOpen(const NamespaceDigest& ns) const { return namespaces.contains(ns); }
  // Returns the declaration. FailedPrecondition: the session does not have the namespace open.
  absl::StatusOr<const NamespaceSpec*> FindNamespace(const NamespaceDigest& ns) const;

  const SessionToken token;
  const std::shared_ptr<const SessionInfo> info;
  const MonotonicTime opened;
  std::map<NamespaceDigest, NamespaceSpec> namespaces;
};

class SessionTable {
 public:
  static constexpr size_t kMostNamespaces = 256;  // that a session may have open

  // All outlive it.
  struct Uses {
    const Owners* owners;
    Clock* clock;
    StoreCounters* counters;
    std::vector<TenantCounters>* tenant_counters;  // by TenantId
  };
  // `claims`: each tenant's claim on the sessions, by TenantId.
  SessionTable(const StoreOptions& options, const std::vector<Shares::Claim>& claims,
               Incarnation incarnation, const Uses& uses);

  // ---- limits that may change
  void SetMaxSessions(uint64_t sessions) {
    max_sessions_ = sessions;
    shares_.SetCapacity(sessions);
  }
  // 0: no limit.
  void SetRates(TenantId tenant, uint64_t keys_per_second, uint64_t bytes_per_second) {
    rates_of(tenant).SetRates(keys_per_second, bytes_per_second);
  }
  const Rates& rates(TenantId tenant) const { return rates_[tenant.value()]; }

  // ---- which there are
  // ResourceExhausted: the tenant has too many sessions. REQUIRES: no session has the token.
  absl::Status Open(const SessionToken& token, const SessionInfo& info);
  // Removes the session and returns it; null: there is none.
  std::unique_ptr<Session> Close(const SessionToken& token, bool revoked);
  // Returns the session. FailedPrecondition: it is not open.
  absl::StatusOr<Session*> Find(const SessionToken& token);
  // Returns the session; null: it is not open.
  Session* FindOrNull(const SessionToken& token);
  bool IsOpen(const SessionToken& token) const { return sessions_.contains(token); }
  // For a walk. Returns the session whose token follows `after`, or the first; null: no more.
  const Session* Next(const std::optional<SessionToken>& after) const;

  // ---- what a session may do
  // PermissionDenied: its tenant may not read there. ResourceExhausted: too many are open.
  absl::StatusOr<NamespaceDigest> OpenNamespace(Session& session, const NamespaceSpec& spec);
  // PermissionDenied: the session does not have the grant.
  absl::Status CheckGrant(const Session& session, bool Grants::*grant);
  // PermissionDenied: the namespace is another tenant's.
  absl::Status CheckOwn(const Session& session, const NamespaceDigest& ns);
  absl::Status CheckChunkSet(const Session& session, const ChunkSet& chunks) const;
  // Returns OK if its tenant's rates allow keys, bytes, or both; else ResourceExhausted.
  absl::Status AskRates(Session& session, bool keys, bool bytes);
  void ChargeKeys(Session& session, uint64_t keys);
  // Takes a tenant, as the session may be closed by now.
  void ChargeBytes(TenantId tenant, uint64_t bytes);
  // Returns the session, if it has the grant and may ask for these chunks.
  absl::StatusOr<Session*> FindUncharged(const SessionToken& token, const ChunkSet& chunks,
                                         bool Grants::*grant);
  // The same, if its tenant is also within its rates. Charges the keys.
  absl::StatusOr<Session*> FindFor(const SessionToken& token, const ChunkSet& chunks,
                                   bool Grants::*grant, bool moves_bytes = false);

  void CheckInvariants() const;

 private:
  Rates& rates_of(TenantId tenant) {
    KVKEEP_CHECK(tenant.value() < rates_.size());
    return rates_[tenant.value()];
  }

  const Incarnation incarnation_;  // named in the error for a session that is not open
  const uint64_t max_keys_per_call_;
  const Owners& owners_;
  Clock& clock_;
  StoreCounters& counters_;
  std::vector<TenantCounters>& tenant_counters_;
  uint64_t max_sessions_ = 0;
  Shares shares_;             // divides max_sessions_
  std::vector<Rates> rates_;  // by TenantId
  // A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<SessionToken, std::unique_ptr<Session>> sessions_;
};

}  // namespace kvkeep::store_internal
