#include "tiers/store/sessions.h"

#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep::store_internal {

Sessions::Sessions(const StoreOptions& options, const std::vector<Shares::Claim>& claims,
                   const StoreDeps& deps, Chunks* chunks, const Owners* owners, ServedMeter* served,
                   EventHub* events)
    : table(options, claims, chunks->incarnation(),
            {owners, deps.clock, &chunks->counters, &chunks->tenant_counters}),
      leases(options.max_leases_per_session, &chunks->table, &chunks->pools, &chunks->counters),
      random_(*deps.random),
      chunks_(*chunks),
      owners_(*owners),
      served_(*served),
      events_(*events) {}

absl::StatusOr<SessionToken> Sessions::Open(const SessionInfo& info) {
  KVKEEP_RETURN_IF_ERROR(info.Validate(owners_.count()));
  const SessionToken token = random_.Next<SessionToken>();
  Section section(&chunks_);
  if (chunks_.draining) return absl::UnavailableError("the daemon is draining");
  KVKEEP_RETURN_IF_ERROR(table.Open(token, info));
  leases.Open(token, info.tenant);
  return token;
}

void Sessions::Close(const SessionToken& token, bool revoked) {
  std::unique_ptr<Session> ended;  // both outlive the lock, as freeing them takes time
  std::shared_ptr<LeaseHolder> holder;
  Section section(&chunks_);
  // The session's puts in progress give their space back when they seal and find it gone, as their
  // writers may be copying now.
  ended = table.Close(token, revoked);
  if (ended == nullptr) return;
  holder = leases.Close(token, revoked);
  events_.WakeReadersOf(token);
  // LetGoOfAll yields, but nobody changes these leases meanwhile: the holder is out of the book,
  // and a call that had it before (Release, a grant) looks its session up after each yield and
  // finds none.
  for (const auto& [id, lease] : holder->leases()) {
    chunks_.Count(work::kLook);
    LetGoOfAll(section, *holder, lease.entries);
  }
}

void Sessions::LetGo(LeaseHolder& holder, const Lease::Entry& entry) {
  chunks_.Count(work::kFind);
  leases.LetGo(holder, entry.slot);
  chunks_.Unpin(entry.slot);
}

void Sessions::LetGoOfAll(Section& section, LeaseHolder& holder,
                          const std::vector<Lease::Entry>& entries) {
  for (const Lease::Entry& entry : entries) {
    section.YieldIfSpent();
    LetGo(holder, entry);
  }
}

absl::StatusOr<NamespaceDigest> Sessions::OpenNamespace(const SessionToken& token,
                                                        const NamespaceSpec& spec) {
  KVKEEP_RETURN_IF_ERROR(spec.Validate());
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, table.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest, table.OpenNamespace(*session, spec));
  const TenantId owner = owners_.OwnerOf(digest);
  served_.meters.Open(digest, owner, owners_.at(owner).shown_name(), spec);
  return digest;
}

absl::StatusOr<TenantId> Sessions::TenantOf(const SessionToken& token) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, table.Find(token));
  return session->tenant();
}

absl::StatusOr<NamespaceSpec> Sessions::FindNamespace(const SessionToken& token,
                                                      const NamespaceDigest& ns) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, table.Find(token));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* spec, session->FindNamespace(ns));
  return *spec;
}

uint32_t Sessions::TokensPerChunk(const NamespaceDigest& ns) {
  Section section(&chunks_);
  std::optional<SessionToken> last;
  while (const Session* session = table.Next(last)) {
    const auto spec = session->namespaces.find(ns);
    if (spec != session->namespaces.end()) return spec->second.tokens_per_chunk;
    last = session->token;
    chunks_.Count(work::kSession);
    section.YieldIfSpent();
  }
  return 0;
}

absl::Status Sessions::Release(const SessionToken& token, LeaseId lease_id, uint32_t keep_keys) {
  Lease ended;  // both outlive the lock, as freeing them takes time
  std::shared_ptr<LeaseHolder> holder;
  Section section(&chunks_);
  for (bool first = true;; first = false) {
    const absl::Status open = table.Find(token).status();
    if (!open.ok()) return first ? open : absl::OkStatus();
    holder = leases.of(token);
    const Lease* const lease = holder->Find(lease_id);
    if (lease == nullptr) {
      if (!first) return absl::OkStatus();  // another call ended it meanwhile
      return absl::FailedPreconditionError("lease_id is not of a lease of this session");
    }
    holder->LimitKeys(lease_id, keep_keys);
    if (lease->entries.empty() || lease->entries.front().key_index >= keep_keys) {
      // Ends the whole lease: no other call finds it any more while its entries are let go of.
      ended = holder->Take(lease_id);
      LetGoOfAll(section, *holder, ended.entries);
      return absl::OkStatus();
    }
    while (!chunks_.Spent() && lease->entries.back().key_index >= keep_keys) {
      const uint64_t bytes = chunks_.table.at(lease->entries.back().slot).blocks() * kBlockBytes;
      LetGo(*holder, holder->TakeLast(lease_id, bytes));
    }
    if (lease->entries.back().key_index < keep_keys) return absl::OkStatus();
    section.Yield();
  }
}

}  // namespace kvkeep::store_internal
