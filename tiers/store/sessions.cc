// Sessions, namespaces and the end of leases.
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

absl::StatusOr<SessionToken> Core::OpenSession(const SessionInfo& info) {
  KVKEEP_RETURN_IF_ERROR(info.Validate(owners_.count()));
  const SessionToken token = deps_.random->Next<SessionToken>();
  Section section(this);
  if (draining_) return absl::UnavailableError("the daemon is draining");
  if (sessions_.size() >= limits_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sessions: all ", limits_.max_sessions, " are open"));
  }
  // Each tenant has its part of them, at least one: nobody is locked out by another.
  const uint64_t own = std::max<uint64_t>(1, session_shares_.share(info.tenant));
  if (session_shares_.held(info.tenant) >= own) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "sessions: all ", own, " of this tenant's part of ", limits_.max_sessions, " are open"));
  }
  session_shares_.Take(info.tenant, 1);
  auto session = std::make_unique<Session>();
  session->info = std::make_shared<SessionInfo>(info);
  session->lessee = std::make_shared<Lessee>(info.tenant);
  session->opened = deps_.clock->Now();
  sessions_.emplace(token, std::move(session));
  ++counters_.sessions_opened;
  return token;
}

void Core::CloseSession(const SessionToken& token, bool revoked) {
  std::unique_ptr<Session> ended;  // outlives the lock: freeing it takes time
  Section section(this);
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) return;
  // Its puts in progress find the session gone when they seal, and give their space back then:
  // their writers may be copying right now.
  ended = std::move(found->second);
  sessions_.erase(found);
  session_shares_.Give(ended->info->tenant, 1);
  if (ended->lessee->asked) --pool(ended->info->tenant).lessees;
  ++counters_.sessions_closed;
  counters_.sessions_revoked += revoked;
  counters_.leases_revoked += revoked ? ended->leases.size() : 0;
  events_.WakeReadersOf(token);
  for (const auto& [id, lease] : ended->leases) {
    Count(work::kLook);
    UnpinAll(section, *ended->lessee, lease.entries);
  }
}

void Core::UnpinLeased(Lessee& holder, const Lease::Entry& entry) {
  const Chunk& chunk = table_.at(entry.slot);
  Count(work::kFind);
  holder.Remove(entry.slot, chunk.tenant, chunk.blocks());
  if (chunk.tenant != holder.tenant) {
    pool(chunk).lent_blocks -= chunk.blocks();
    pool(holder.tenant).borrowed_blocks -= chunk.blocks();
  }
  UnpinLocked(entry.slot);
}

void Core::UnpinAll(Section& section, Lessee& holder, const std::vector<Lease::Entry>& entries) {
  for (const Lease::Entry& entry : entries) {
    section.YieldIfSpent();
    UnpinLeased(holder, entry);
  }
}

absl::StatusOr<Session*> Core::FindSession(const SessionToken& token) {
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "session_token is not of an open session (daemon incarnation ", incarnation_.value(), ")"));
  }
  return found->second.get();
}

absl::Status Core::AskRates(Session& session, bool keys, bool bytes) {
  const TenantId tenant = session.info->tenant;
  if (!rates(tenant).limited()) return absl::OkStatus();
  return rates(tenant).Ask(session.rates, keys, bytes, deps_.clock->Now(),
                           tenant_counters_[tenant.value()]);
}

absl::StatusOr<NamespaceDigest> Core::OpenNamespace(const SessionToken& token,
                                                    const NamespaceSpec& spec) {
  absl::Status valid = spec.Validate();
  if (!valid.ok()) return valid;
  constexpr size_t kMaxNamespaces = 256;
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, FindSession(token));
  absl::StatusOr<TenantId> owner = owners_.Find(session->info->tenant, spec.tenant);
  if (!owner.ok()) {
    ++counters_.denied_calls;
    return owner.status();
  }
  // Some microseconds at most: its texts are short.
  const NamespaceDigest digest = spec.Digest(owners_.at(*owner).name);
  auto& namespaces = session->namespaces;
  if (namespaces.size() >= kMaxNamespaces && !namespaces.contains(digest)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("namespaces: this session has ", kMaxNamespaces, " open, the most allowed"));
  }
  namespaces.emplace(digest, spec);
  meters_.Open(digest, *owner, owners_.at(*owner).shown_name(), spec);
  return digest;
}

absl::StatusOr<TenantId> Core::TenantOf(const SessionToken& token) {
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, FindSession(token));
  return session->info->tenant;
}

absl::StatusOr<NamespaceSpec> Core::FindNamespace(const SessionToken& token,
                                                  const NamespaceDigest& ns) {
  Section section(this);
  absl::StatusOr<Session*> session = FindSession(token);
  if (!session.ok()) return session.status();
  const auto found = (*session)->namespaces.find(ns);
  if (found == (*session)->namespaces.end()) {
    return absl::FailedPreconditionError("namespace_digest is not of a namespace of this session");
  }
  return found->second;
}

absl::Status Core::CheckChunkSet(const Session& session, const ChunkSet& chunks) const {
  const auto found = session.namespaces.find(chunks.ns);
  if (found == session.namespaces.end()) {
    return absl::FailedPreconditionError("namespace_digest is not of a namespace of this session");
  }
  if (chunks.keys.empty() || chunks.parts.empty()) {
    return absl::InvalidArgumentError("keys or parts is empty");
  }
  if (chunks.parts.size() > kMaxPartsPerCall) {
    return absl::InvalidArgumentError(absl::StrCat("parts names ", chunks.parts.size(),
                                                   ", allowed are at most ", kMaxPartsPerCall));
  }
  if (chunks.keys.size() * chunks.parts.size() > options_.max_keys_per_call) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys x parts is ", chunks.keys.size() * chunks.parts.size(),
                     ", allowed are at most ", options_.max_keys_per_call));
  }
  for (size_t i = 0; i < chunks.parts.size(); ++i) {
    if (chunks.parts[i].value() >= found->second.parts) {
      return absl::InvalidArgumentError(absl::StrCat("parts names ", chunks.parts[i].value(),
                                                     ", the namespace has ", found->second.parts));
    }
    for (size_t j = 0; j < i; ++j) {
      if (chunks.parts[j] == chunks.parts[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat("parts names ", chunks.parts[i].value(), " twice"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Core::CheckGrant(const Session& session, bool Grants::*grant) {
  if (session.info->grants.*grant) return absl::OkStatus();
  ++counters_.denied_calls;
  return absl::PermissionDeniedError(grant == &Grants::read
                                         ? "this session may not read: its grant is write"
                                         : "this session may not write: its grant is read");
}

absl::Status Core::CheckOwn(const Session& session, const NamespaceDigest& ns) {
  const TenantId owner = OwnerOf(ns);
  if (owner == session.info->tenant) return absl::OkStatus();
  ++counters_.denied_calls;
  return absl::PermissionDeniedError(
      absl::StrCat("this namespace is tenant '", owners_.at(owner).shown_name(),
                   "'s, who lets this session's tenant read there, not write"));
}

absl::StatusOr<Session*> Core::FindSessionFor(const SessionToken& token, const ChunkSet& chunks,
                                              bool Grants::*grant, bool moves_bytes) {
  absl::StatusOr<Session*> session = FindSession(token);
  if (!session.ok()) return session;
  absl::Status granted = CheckGrant(**session, grant);
  if (!granted.ok()) return granted;
  absl::Status valid = CheckChunkSet(**session, chunks);
  if (valid.ok() && grant == &Grants::write) valid = CheckOwn(**session, chunks.ns);
  if (!valid.ok()) return valid;
  absl::Status in_time = AskRates(**session, true, moves_bytes);
  if (!in_time.ok()) return in_time;
  rates((*session)->info->tenant)
      .TakeKeys(&(*session)->rates, chunks.keys.size() * chunks.parts.size());
  return session;
}

absl::Status Core::Release(const SessionToken& token, LeaseId lease_id, uint32_t keep_keys) {
  Lease ended;  // outlives the lock: freeing it takes time
  Section section(this);
  for (bool first = true;; first = false) {
    absl::StatusOr<Session*> session = FindSession(token);
    if (!session.ok()) return first ? session.status() : absl::OkStatus();
    const auto found = (*session)->leases.find(lease_id.value());
    if (found == (*session)->leases.end()) {
      if (!first) return absl::OkStatus();  // another call ended it meanwhile
      return absl::FailedPreconditionError("lease_id is not of a lease of this session");
    }
    Lease& lease = found->second;
    lease.keys = std::min(lease.keys, keep_keys);
    if (lease.entries.empty() || lease.entries.front().key_index >= keep_keys) {
      // All of it: nobody finds it any more, and it is worked off in peace.
      ended = std::move(lease);
      (*session)->leased_bytes -= ended.bytes;
      (*session)->leases.erase(found);
      if (ended.client_request_id != 0) {
        (*session)->leases_by_request.erase(ended.client_request_id);
      }
      const std::shared_ptr<Lessee> holder = (*session)->lessee;  // the session may end meanwhile
      UnpinAll(section, *holder, ended.entries);
      return absl::OkStatus();
    }
    while (!Spent() && lease.entries.back().key_index >= keep_keys) {
      const Lease::Entry entry = lease.entries.back();
      const uint64_t bytes = table_.at(entry.slot).blocks() * kBlockBytes;
      lease.bytes -= bytes;
      (*session)->leased_bytes -= bytes;
      lease.entries.pop_back();
      UnpinLeased(*(*session)->lessee, entry);
    }
    if (lease.entries.back().key_index < keep_keys) return absl::OkStatus();
    section.Yield();
  }
}

}  // namespace kvkeep::store_internal
