#include "tiers/store/lookups.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"

namespace kvkeep::store_internal {

Lookups::Lookups(const StoreOptions& options, Parts parts)
    : options_(options),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      filler_(*parts.filler),
      promoter_(*parts.promoter),
      finder_(*parts.finder),
      granter_(*parts.granter),
      sessions_(*parts.sessions),
      owners_(*parts.owners),
      reuse_(*parts.reuse),
      beyond_(parts.beyond) {}

std::optional<absl::StatusOr<LookupResult>> Lookups::LookupOrSearch(const SessionToken& token,
                                                                    const LookupRequest& request,
                                                                    SearchedCallback searched) {
  LookupState lookup(request.chunks, options_);
  Grant grant{.request = request, .lookup = lookup};
  if (request.lease_mode != LeaseMode::kNone) grant.Reserve();
  lookup.to_read.resize(tiers_.size());
  // A get waits for chunks that are on their way, whoever asked for them, as Read does.
  const bool gets = request.want_places && request.lease_mode == LeaseMode::kAllPresent;
  if (request.beyond.asks() || gets) lookup.coming_parts.assign(lookup.g2_parts.size(), 0);
  RecallingPtr recalling, not_asked;  // above the lock, so that their callbacks die without it
  if (searched != nullptr) recalling = beyond_->recaller.ForLookup(request, std::move(searched));
  ReuseMeter::Note note(&reuse_);
  Section section(&chunks_);
  const TenantId tenant = owners_.OwnerOf(request.chunks.ns);
  bool repeated = false;
  {
    const bool moves_bytes = request.lease_mode != LeaseMode::kNone && request.want_places;
    const absl::StatusOr<Session*> session =
        request.after_search
            ? sessions_.table.FindUncharged(token, request.chunks, &Grants::read)
            : sessions_.table.FindFor(token, request.chunks, &Grants::read, moves_bytes);
    if (!session.ok()) return session.status();
    grant.holder = sessions_.leases.of(token);
    lookup.requester = {grant.holder->tenant, token};
    repeated = grant.holder->FindRequest(request.client_request_id) != LeaseId(0);
    absl::Status allowed = sessions_.leases.CheckRoom(*grant.holder);
    if (request.lease_mode != LeaseMode::kNone && !repeated && !allowed.ok()) return allowed;
    if (repeated || (recalling != nullptr && !MayAskBeyond((*session)->tenant()).ok())) {
      recalling.swap(not_asked);
    }
    // This comes before the table is looked at, so that no chunk deleted from here on is brought.
    if (recalling != nullptr) beyond_->recaller.Begin(lookup.requester, tenant, *recalling);
  }
  if (!request.after_search) {
    ++chunks_.counters.lookups;
    chunks_.counters.lookup_keys += request.chunks.keys.size();
  }
  // The search brings chunks head first. G2's policy gets them in the order of the request.
  const Finder::Tells tells = request.after_search ? Finder::Tells::kG2 : Finder::Tells::kAll;
  finder_.FindAll(section, tenant, lookup, repeated ? Finder::Tells::kNobody : tells);
  if (recalling != nullptr && SearchIfWorth(section, request, lookup, recalling)) {
    return std::nullopt;
  }
  const auto promotion_time = finder_.PromotionTime(lookup);  // before it starts any
  chunks_.counters.lookup_leading_keys += lookup.leading_keys;
  if (!repeated) {
    note.Asked(lookup.found, uint64_t{lookup.leading_keys} * request.chunks.parts.size());
  }
  if (repeated || request.lease_mode != LeaseMode::kNone) {
    absl::Status granted = granter_.GrantLease(section, token, tenant, grant);
    if (!granted.ok()) return granted;
    // The keys behind the end of a shortened lease are asked for again, and count then.
    if (request.want_places && !repeated && !grant.shortened) {
      chunks_.counters.read_misses += lookup.absent;
    }
  }
  LookupResult result = std::move(grant.result);
  result.g2_parts = std::move(lookup.g2_parts);
  result.g3_parts = std::move(lookup.g3_parts);
  if (request.beyond.asks()) result.coming_parts = std::move(lookup.coming_parts);
  result.leading_keys = lookup.leading_keys;
  result.promotion_time = promotion_time;
  result.beyond_keys = lookup.reachable_keys - lookup.leading_keys;
  if (result.beyond_keys > 0) result.beyond_time = finder_.BeyondTime(lookup);
  return result;
}

absl::StatusOr<uint64_t> Lookups::Touch(const SessionToken& token, const ChunkSet& chunks) {
  LookupState lookup(chunks, options_);
  {
    Section section(&chunks_);
    const absl::StatusOr<Session*> session = sessions_.table.FindFor(token, chunks, &Grants::read);
    if (!session.ok()) return session.status();
    finder_.FindAll(section, owners_.OwnerOf(chunks.ns), lookup, Finder::Tells::kAll);
  }
  return static_cast<uint64_t>(
      std::count_if(lookup.found.begin(), lookup.found.end(),
                    [](const EvictionPolicy::ChainLink& link) { return link.slot != kNoSlot; }));
}

absl::StatusOr<PrefetchResult> Lookups::Prefetch(const SessionToken& token,
                                                 const ChunkSet& chunks) {
  LookupState lookup(chunks, options_);
  PrefetchResult result;
  Section section(&chunks_);
  const absl::StatusOr<Session*> session = sessions_.table.FindFor(token, chunks, &Grants::read);
  if (!session.ok()) return session.status();
  const TenantId tenant = owners_.OwnerOf(chunks.ns);
  const ReadQueue::Requester requester{(*session)->tenant(), token};
  finder_.FindAll(section, tenant, lookup, Finder::Tells::kAll);
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    // Making room for an earlier chunk may have evicted this one from every tier.
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !chunks_.table.StillIs(slot, lookup.id(i))) continue;
    filler_.Hurry(slot);  // if the store reads or verifies it for itself
    if (chunks_.table.at(slot).resident()) {
      ++result.ready_chunks;
    } else if (chunks_.table.at(slot).g2_state == G2State::kUnverified) {
      filler_.Verify(slot);
      ++result.started_chunks;
    } else if (tiers_.InG3(chunks_.table.at(slot))) {
      // G2 is full, so the other chunks would not fit either.
      if (!promoter_.EnsureInG2(section, requester, tenant, slot, kNoSlot, false)) break;
      ++result.started_chunks;
    }
  }
  return result;
}

// ---- beyond the node

// The call that came before has charged the keys.
void Lookups::Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done) {
  LookupState lookup(chunks, options_);
  const auto recalling = std::make_shared<Recalling>();
  Section section(&chunks_);
  const absl::StatusOr<Session*> session =
      sessions_.table.FindUncharged(token, chunks, &Grants::read);
  absl::Status may = session.ok() ? MayAskBeyond((*session)->tenant()) : session.status();
  if (!may.ok()) return chunks_.CallLater(std::move(done), std::move(may));
  recalling->done = std::move(done);
  const TenantId owner = owners_.OwnerOf(chunks.ns);
  beyond_->recaller.Begin({(*session)->tenant(), token}, owner, *recalling);
  finder_.FindAll(section, owner, lookup, Finder::Tells::kNobody);
  beyond_->recaller.NameMissing(section, chunks, lookup.found, 0, *recalling);
  beyond_->recaller.Search(recalling);
}

void Lookups::AskBeyond(const SessionToken& token, const LookupRequest& request,
                        absl::AnyInvocable<void(bool) &&> asked) {
  LookupState lookup(request.chunks, options_);
  lookup.coming_parts.assign(request.chunks.keys.size(), 0);
  // The search calls this, or not_asked if there is no search.
  const auto tell = std::make_shared<absl::AnyInvocable<void(bool) &&>>(std::move(asked));
  RecallingPtr recalling;  // above the lock: it may be large, and is freed without it
  Section section(&chunks_);
  const auto not_asked = [&]() STORE_LOCKED {
    chunks_.Later([tell] { std::move(*tell)(false); });
  };
  // The call that follows says what is wrong with the request.
  const absl::StatusOr<Session*> session =
      sessions_.table.FindUncharged(token, request.chunks, &Grants::read);
  if (!session.ok() || !sessions_.table.AskRates(**session, true, false).ok()) return not_asked();
  if (!request.beyond.asks() || !MayAskBeyond((*session)->tenant()).ok()) return not_asked();
  recalling = beyond_->recaller.ForLookup(request, [tell] { std::move(*tell)(true); });
  const TenantId owner = owners_.OwnerOf(request.chunks.ns);
  beyond_->recaller.Begin({(*session)->tenant(), token}, owner, *recalling);
  finder_.FindAll(section, owner, lookup, Finder::Tells::kNobody);
  if (!SearchIfWorth(section, request, lookup, recalling)) not_asked();
}

absl::Status Lookups::MayAskBeyond(TenantId asks) {
  if (beyond_ != nullptr) return beyond_->recaller.MayAsk(asks);
  return absl::UnavailableError("nothing lies beyond the node");
}

bool Lookups::SearchIfWorth(Section& section, const LookupRequest& request,
                            const LookupState& lookup, const RecallingPtr& recalling) {
  const std::chrono::nanoseconds by_cost =
      recalling->recompute_per_key * static_cast<int64_t>(request.chunks.keys.size());
  const MonotonicTime promised = recalling->asked_at + std::max(by_cost, recalling->wait);
  beyond_->recaller.PromiseWhatComes(request.chunks, lookup.found, promised);
  beyond_->recaller.NameMissing(section, request.chunks, lookup.found,
                                recalling->head_run ? lookup.reachable_keys : 0, *recalling);
  return beyond_->recaller.SearchIfWorth(recalling, request.beyond.wait);
}

}  // namespace kvkeep::store_internal
