// Sessions and namespaces, which are SessionTable's, and the end of leases.
#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

absl::StatusOr<SessionToken> Core::OpenSession(const SessionInfo& info) {
  KVKEEP_RETURN_IF_ERROR(info.Validate(owners_.count()));
  const SessionToken token = deps_.random->Next<SessionToken>();
  Section section(&chunks_);
  if (chunks_.draining) return absl::UnavailableError("the daemon is draining");
  KVKEEP_RETURN_IF_ERROR(sessions_.Open(token, info));
  leases_.Open(token, info.tenant);
  return token;
}

void Core::CloseSession(const SessionToken& token, bool revoked) {
  std::unique_ptr<Session> ended;  // outlive the lock: freeing them takes time
  std::shared_ptr<LeaseHolder> holder;
  Section section(&chunks_);
  // Its puts in progress find the session gone when they seal, and give their space back then:
  // their writers may be copying right now.
  ended = sessions_.Close(token, revoked);
  if (ended == nullptr) return;
  holder = leases_.Close(token, revoked);
  events_.WakeReadersOf(token);
  // UnpinAll yields, and nobody changes these leases meanwhile: the holder is out of the book, and
  // who had it before (Release, a grant) looks its session up after each yield and finds none.
  for (const auto& [id, lease] : holder->leases()) {
    Count(work::kLook);
    UnpinAll(section, *holder, lease.entries);
  }
}

void Core::UnpinLeased(LeaseHolder& holder, const Lease::Entry& entry) {
  Count(work::kFind);
  leases_.LetGo(holder, entry.slot);
  chunks_.Unpin(entry.slot);
}

void Core::UnpinAll(Section& section, LeaseHolder& holder,
                    const std::vector<Lease::Entry>& entries) {
  for (const Lease::Entry& entry : entries) {
    section.YieldIfSpent();
    UnpinLeased(holder, entry);
  }
}

absl::StatusOr<NamespaceDigest> Core::OpenNamespace(const SessionToken& token,
                                                    const NamespaceSpec& spec) {
  KVKEEP_RETURN_IF_ERROR(spec.Validate());
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest, sessions_.OpenNamespace(*session, spec));
  const TenantId owner = owners_.OwnerOf(digest);
  meters_.Open(digest, owner, owners_.at(owner).shown_name(), spec);
  return digest;
}

absl::StatusOr<TenantId> Core::TenantOf(const SessionToken& token) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.Find(token));
  return session->tenant();
}

absl::StatusOr<NamespaceSpec> Core::FindNamespace(const SessionToken& token,
                                                  const NamespaceDigest& ns) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* spec, session->FindNamespace(ns));
  return *spec;
}

uint32_t Core::TokensPerChunk(const NamespaceDigest& ns) {
  Section section(&chunks_);
  std::optional<SessionToken> last;
  while (const Session* session = sessions_.Next(last)) {
    const auto spec = session->namespaces.find(ns);
    if (spec != session->namespaces.end()) return spec->second.tokens_per_chunk;
    last = session->token;
    Count(work::kSession);
    section.YieldIfSpent();
  }
  return 0;
}

absl::Status Core::Release(const SessionToken& token, LeaseId lease_id, uint32_t keep_keys) {
  Lease ended;  // outlive the lock: freeing them takes time
  std::shared_ptr<LeaseHolder> holder;
  Section section(&chunks_);
  for (bool first = true;; first = false) {
    const absl::Status open = sessions_.Find(token).status();
    if (!open.ok()) return first ? open : absl::OkStatus();
    holder = leases_.of(token);
    const Lease* const lease = holder->Find(lease_id);
    if (lease == nullptr) {
      if (!first) return absl::OkStatus();  // another call ended it meanwhile
      return absl::FailedPreconditionError("lease_id is not of a lease of this session");
    }
    holder->LimitKeys(lease_id, keep_keys);
    if (lease->entries.empty() || lease->entries.front().key_index >= keep_keys) {
      // All of it: nobody finds it any more, and it is worked off in peace.
      ended = holder->Take(lease_id);
      UnpinAll(section, *holder, ended.entries);
      return absl::OkStatus();
    }
    while (!Spent() && lease->entries.back().key_index >= keep_keys) {
      const uint64_t bytes = table_.at(lease->entries.back().slot).blocks() * kBlockBytes;
      UnpinLeased(*holder, holder->TakeLast(lease_id, bytes));
    }
    if (lease->entries.back().key_index < keep_keys) return absl::OkStatus();
    section.Yield();
  }
}

}  // namespace kvkeep::store_internal
