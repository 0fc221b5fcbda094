#include "tiers/store/session_table.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::store_internal {

absl::StatusOr<const NamespaceSpec*> Session::FindNamespace(const NamespaceDigest& ns) const {
  const auto found = namespaces.find(ns);
  if (found != namespaces.end()) return &found->second;
  return absl::FailedPreconditionError("namespace_digest is not of a namespace of this session");
}

SessionTable::SessionTable(const StoreOptions& options, const std::vector<Shares::Claim>& claims,
                           Incarnation incarnation, const Uses& uses)
    : incarnation_(incarnation),
      max_keys_per_call_(options.max_keys_per_call),
      owners_(*uses.owners),
      clock_(*uses.clock),
      counters_(*uses.counters),
      tenant_counters_(*uses.tenant_counters),
      shares_(claims) {
  for (const TenantOptions& tenant : options.tenants) {
    rates_.emplace_back(tenant.keys_per_second, tenant.bytes_per_second);
  }
  KVKEEP_CHECK(claims.size() == rates_.size());
  SetMaxSessions(options.max_sessions);
}

absl::Status SessionTable::Open(const SessionToken& token, const SessionInfo& info) {
  KVKEEP_CHECK(info.tenant.value() < rates_.size());
  if (sessions_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sessions: all ", max_sessions_, " are open"));
  }
  // Each tenant has its part of them, at least one, so that no other tenant can lock it out.
  const uint64_t own = std::max<uint64_t>(1, shares_.share(info.tenant));
  if (shares_.held(info.tenant) >= own) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "sessions: all ", own, " of this tenant's part of ", max_sessions_, " are open"));
  }
  Session session{.token = token,
                  .info = std::make_shared<SessionInfo>(info),
                  .opened = clock_.Now()};
  KVKEEP_CHECK(sessions_.emplace(token, std::make_unique<Session>(std::move(session))).second);
  shares_.Take(info.tenant, 1);
  ++counters_.sessions_opened;
  return absl::OkStatus();
}

std::unique_ptr<Session> SessionTable::Close(const SessionToken& token, bool revoked) {
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<Session> ended = std::move(found->second);
  sessions_.erase(found);
  shares_.Give(ended->tenant(), 1);
  ++counters_.sessions_closed;
  counters_.sessions_revoked += revoked;
  return ended;
}

absl::StatusOr<Session*> SessionTable::Find(const SessionToken& token) {
  Session* const session = FindOrNull(token);
  if (session != nullptr) return session;
  return absl::FailedPreconditionError(absl::StrCat(
      "session_token is not of an open session (daemon incarnation ", incarnation_.value(), ")"));
}

Session* SessionTable::FindOrNull(const SessionToken& token) {
  const auto found = sessions_.find(token);
  return found == sessions_.end() ? nullptr : found->second.get();
}

const Session* SessionTable::Next(const std::optional<SessionToken>& after) const {
  const auto next = after.has_value() ? sessions_.upper_bound(*after) : sessions_.begin();
  return next == sessions_.end() ? nullptr : next->second.get();
}

absl::StatusOr<NamespaceDigest> SessionTable::OpenNamespace(Session& session,
                                                            const NamespaceSpec& spec) {
  const absl::StatusOr<TenantId> owner = owners_.Find(session.tenant(), spec.tenant);
  if (!owner.ok()) {
    ++counters_.denied_calls;
    return owner.status();
  }
  // This takes some microseconds at most, as the texts are short.
  const NamespaceDigest digest = spec.Digest(owners_.at(*owner).name);
  if (session.namespaces.size() >= kMostNamespaces && !session.HasOpen(digest)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("namespaces: this session has ", kMostNamespaces, " open, the most allowed"));
  }
  session.namespaces.emplace(digest, spec);
  return digest;
}

absl::Status SessionTable::CheckGrant(const Session& session, bool Grants::*grant) {
  if (session.info->grants.*grant) return absl::OkStatus();
  ++counters_.denied_calls;
  return absl::PermissionDeniedError(grant == &Grants::read
                                         ? "this session may not read: its grant is write"
                                         : "this session may not write: its grant is read");
}

absl::Status SessionTable::CheckOwn(const Session& session, const NamespaceDigest& ns) {
  const TenantId owner = owners_.OwnerOf(ns);
  if (owner == session.tenant()) return absl::OkStatus();
  ++counters_.denied_calls;
  return absl::PermissionDeniedError(
      absl::StrCat("this namespace is tenant '", owners_.at(owner).shown_name(),
                   "'s, who lets this session's tenant read there, not write"));
}

absl::Status SessionTable::CheckChunkSet(const Session& session, const ChunkSet& chunks) const {
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* ns, session.FindNamespace(chunks.ns));
  if (chunks.keys.empty() || chunks.parts.empty()) {
    return absl::InvalidArgumentError("keys or parts is empty");
  }
  if (chunks.parts.size() > kMaxPartsPerCall) {
    return absl::InvalidArgumentError(absl::StrCat("parts names ", chunks.parts.size(),
                                                   ", allowed are at most ", kMaxPartsPerCall));
  }
  if (chunks.keys.size() * chunks.parts.size() > max_keys_per_call_) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys x parts is ", chunks.keys.size() * chunks.parts.size(),
                     ", allowed are at most ", max_keys_per_call_));
  }
  for (size_t i = 0; i < chunks.parts.size(); ++i) {
    if (chunks.parts[i].value() >= ns->parts) {
      return absl::InvalidArgumentError(absl::StrCat("parts names ", chunks.parts[i].value(),
                                                     ", the namespace has ", ns->parts));
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

absl::Status SessionTable::AskRates(Session& session, bool keys, bool bytes) {
  Rates& rates = rates_of(session.tenant());
  if (!rates.limited()) return absl::OkStatus();
  return rates.Ask(keys, bytes, clock_.Now(), tenant_counters_[session.tenant().value()]);
}

void SessionTable::ChargeKeys(Session& session, uint64_t keys) {
  rates_of(session.tenant()).TakeKeys(keys);
}

void SessionTable::ChargeBytes(TenantId tenant, uint64_t bytes) {
  rates_of(tenant).TakeBytes(bytes);
}

absl::StatusOr<Session*> SessionTable::FindUncharged(const SessionToken& token,
                                                     const ChunkSet& chunks,
                                                     bool Grants::*grant) {
  KVKEEP_ASSIGN_OR_RETURN(Session * session, Find(token));
  KVKEEP_RETURN_IF_ERROR(CheckGrant(*session, grant));
  KVKEEP_RETURN_IF_ERROR(CheckChunkSet(*session, chunks));
  if (grant == &Grants::write) KVKEEP_RETURN_IF_ERROR(CheckOwn(*session, chunks.ns));
  return session;
}

absl::StatusOr<Session*> SessionTable::FindFor(const SessionToken& token, const ChunkSet& chunks,
                                               bool Grants::*grant, bool moves_bytes) {
  KVKEEP_ASSIGN_OR_RETURN(Session * session, FindUncharged(token, chunks, grant));
  KVKEEP_RETURN_IF_ERROR(AskRates(*session, true, moves_bytes));
  ChargeKeys(*session, chunks.keys.size() * chunks.parts.size());
  return session;
}

void SessionTable::CheckInvariants() const {
  std::vector<uint64_t> open(rates_.size());
  for (const auto& [token, session] : sessions_) {
    KVKEEP_CHECK(session->token == token);
    KVKEEP_CHECK(session->namespaces.size() <= kMostNamespaces);
    for (const auto& [digest, spec] : session->namespaces) {
      KVKEEP_CHECK(owners_.MayRead(session->tenant(), owners_.OwnerOf(digest)));
    }
    ++open[session->tenant().value()];
  }
  for (TenantId tenant(0); tenant.value() < open.size(); ++tenant) {
    KVKEEP_CHECK(shares_.held(tenant) == open[tenant.value()]);
  }
}

}  // namespace kvkeep::store_internal
