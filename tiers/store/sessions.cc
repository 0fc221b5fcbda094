// Sessions and namespaces, which are SessionTable's, and the end of leases.
#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

absl::StatusOr<SessionToken> Core::OpenSession(const SessionInfo& info) {
  KVKEEP_RETURN_IF_ERROR(info.Validate(owners_.count()));
  const SessionToken token = deps_.random->Next<SessionToken>();
  Section section(this);
  if (draining_) return absl::UnavailableError("the daemon is draining");
  KVKEEP_RETURN_IF_ERROR(sessions_.Open(token, info));
  return token;
}

void Core::CloseSession(const SessionToken& token, bool revoked) {
  std::unique_ptr<Session> ended;  // outlives the lock: freeing it takes time
  Section section(this);
  // Its puts in progress find the session gone when they seal, and give their space back then:
  // their writers may be copying right now.
  ended = sessions_.Close(token, revoked);
  if (ended == nullptr) return;
  if (ended->lessee->asked) --pool(ended->tenant()).lessees;
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

absl::StatusOr<NamespaceDigest> Core::OpenNamespace(const SessionToken& token,
                                                    const NamespaceSpec& spec) {
  KVKEEP_RETURN_IF_ERROR(spec.Validate());
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest, sessions_.OpenNamespace(*session, spec));
  const TenantId owner = OwnerOf(digest);
  meters_.Open(digest, owner, owners_.at(owner).shown_name(), spec);
  return digest;
}

absl::StatusOr<TenantId> Core::TenantOf(const SessionToken& token) {
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.Find(token));
  return session->tenant();
}

absl::StatusOr<NamespaceSpec> Core::FindNamespace(const SessionToken& token,
                                                  const NamespaceDigest& ns) {
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* spec, session->FindNamespace(ns));
  return *spec;
}

absl::Status Core::Release(const SessionToken& token, LeaseId lease_id, uint32_t keep_keys) {
  Lease ended;  // outlives the lock: freeing it takes time
  Section section(this);
  for (bool first = true;; first = false) {
    absl::StatusOr<Session*> session = sessions_.Find(token);
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
