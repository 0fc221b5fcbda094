// SessionTable: the open sessions, the namespaces that each has open, and what each may ask for.
//
// Owns the sessions, how many of them each tenant may have, and the rates of each tenant, which its
// sessions share (rates.h). A session is found by its token; whoever lets go of the store's lock
// finds it again afterwards, as it may have been closed.
//
// Guarantees: a tenant has no more sessions than its part of all, one at least. A session has only
// namespaces open that its tenant owns or may read. A check that fails for want of a right is
// counted. Calls nobody but Owners and the clock. The store's lock protects it.
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
  // FailedPrecondition when it is not open.
  absl::StatusOr<const NamespaceSpec*> FindNamespace(const NamespaceDigest& ns) const;

  const SessionToken token;
  const std::shared_ptr<const SessionInfo> info;
  const MonotonicTime opened;
  std::map<NamespaceDigest, NamespaceSpec> namespaces;
};

class SessionTable {
 public:
  static constexpr size_t kMostNamespaces = 256;  // of a session

  // All outlive it.
  struct Uses {
    const Owners* owners;
    Clock* clock;
    StoreCounters* counters;
    std::vector<TenantCounters>* tenant_counters;  // by TenantId
  };
  // `claims`: on the sessions, by TenantId.
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
  // ResourceExhausted. REQUIRES: no session has the token.
  absl::Status Open(const SessionToken& token, const SessionInfo& info);
  // The session, which nobody finds any more; null when there was none.
  std::unique_ptr<Session> Close(const SessionToken& token, bool revoked);
  // FailedPrecondition.
  absl::StatusOr<Session*> Find(const SessionToken& token);
  // Null when it is not open.
  Session* FindOrNull(const SessionToken& token);
  bool IsOpen(const SessionToken& token) const { return sessions_.contains(token); }
  // For a walk: the one whose token comes after that one, or the first. Null: there is no more.
  const Session* Next(const std::optional<SessionToken>& after) const;

  // ---- what a session may do
  // PermissionDenied when its tenant may not read there; ResourceExhausted.
  absl::StatusOr<NamespaceDigest> OpenNamespace(Session& session, const NamespaceSpec& spec);
  // PermissionDenied when it has no such grant.
  absl::Status CheckGrant(const Session& session, bool Grants::*grant);
  // PermissionDenied in a namespace that is another tenant's.
  absl::Status CheckOwn(const Session& session, const NamespaceDigest& ns);
  absl::Status CheckChunkSet(const Session& session, const ChunkSet& chunks) const;
  // Whether its tenant's rates let it ask for keys, move bytes, or both. ResourceExhausted.
  absl::Status AskRates(Session& session, bool keys, bool bytes);
  void ChargeKeys(Session& session, uint64_t keys);
  // The session whose bytes they are may be closed by now.
  void ChargeBytes(TenantId tenant, uint64_t bytes);
  // The session, when it has the grant, and the chunks are such that it may ask for them.
  absl::StatusOr<Session*> FindUncharged(const SessionToken& token, const ChunkSet& chunks,
                                         bool Grants::*grant);
  // Likewise, when its tenant is within its rates. The keys are charged.
  absl::StatusOr<Session*> FindFor(const SessionToken& token, const ChunkSet& chunks,
                                   bool Grants::*grant, bool moves_bytes = false);

  void CheckInvariants() const;

 private:
  Rates& rates_of(TenantId tenant) {
    KVKEEP_CHECK(tenant.value() < rates_.size());
    return rates_[tenant.value()];
  }

  const Incarnation incarnation_;  // told to who names a session that is not open
  const uint64_t max_keys_per_call_;
  const Owners& owners_;
  Clock& clock_;
  StoreCounters& counters_;
  std::vector<TenantCounters>& tenant_counters_;
  uint64_t max_sessions_ = 0;
  Shares shares_;             // of max_sessions_
  std::vector<Rates> rates_;  // by TenantId
  // A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<SessionToken, std::unique_ptr<Session>> sessions_;
};

}  // namespace kvkeep::store_internal
