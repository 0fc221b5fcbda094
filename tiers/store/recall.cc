// Calls that ask beyond the node (recaller.h).
#include <algorithm>
#include <memory>
#include <utility>

#include "tiers/store/core.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {

// The keys were charged by who called first.
void Core::Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done) {
  LookupState lookup(chunks, options_);
  const auto recalling = std::make_shared<Recalling>();
  Section section(&chunks_);
  const absl::StatusOr<Session*> session =
      sessions_.FindUncharged(token, chunks, &Grants::read);
  absl::Status may = session.ok() ? MayAskBeyond((*session)->tenant()) : session.status();
  if (!may.ok()) return CallLater(std::move(done), std::move(may));
  recalling->done = std::move(done);
  const TenantId owner = owners_.OwnerOf(chunks.ns);
  recaller_->Begin({(*session)->tenant(), token}, owner, *recalling);
  FindAll(section, owner, lookup, Tells::kNobody);
  recaller_->NameMissing(section, chunks, lookup.found, 0, *recalling);
  recaller_->Search(recalling);
}

void Core::AskBeyond(const SessionToken& token, const LookupRequest& request,
                     absl::AnyInvocable<void(bool) &&> asked) {
  LookupState lookup(request.chunks, options_);
  lookup.coming_parts.assign(request.chunks.keys.size(), 0);
  // Told by the search, or here where there is none.
  const auto tell = std::make_shared<absl::AnyInvocable<void(bool) &&>>(std::move(asked));
  RecallingPtr recalling;  // it may be large: its memory goes without the lock
  Section section(&chunks_);
  const auto not_asked = [&]() STORE_LOCKED { Later([tell] { std::move(*tell)(false); }); };
  // What is wrong with the request is said by the call that follows.
  const absl::StatusOr<Session*> session =
      sessions_.FindUncharged(token, request.chunks, &Grants::read);
  if (!session.ok() || !sessions_.AskRates(**session, true, false).ok()) return not_asked();
  if (!request.beyond.asks() || !MayAskBeyond((*session)->tenant()).ok()) return not_asked();
  recalling = recaller_->ForLookup(request, [tell] { std::move(*tell)(true); });
  const TenantId owner = owners_.OwnerOf(request.chunks.ns);
  recaller_->Begin({(*session)->tenant(), token}, owner, *recalling);
  FindAll(section, owner, lookup, Tells::kNobody);
  if (!SearchIfWorth(section, request, lookup, recalling)) not_asked();
}

absl::Status Core::MayAskBeyond(TenantId asks) {
  if (recaller_ != nullptr) return recaller_->MayAsk(asks);
  return absl::UnavailableError("nothing lies beyond the node");
}

// Searches for what the lookup lacks. Returns false, and has ended the recall, if that is not worth
// it.
bool Core::SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                         const RecallingPtr& recalling) {
  const std::chrono::nanoseconds by_cost =
      recalling->recompute_per_key * static_cast<int64_t>(request.chunks.keys.size());
  const MonotonicTime promised = recalling->asked_at + std::max(by_cost, recalling->wait);
  recaller_->PromiseWhatComes(request.chunks, lookup.found, promised);
  recaller_->NameMissing(section, request.chunks, lookup.found,
                         recalling->head_run ? lookup.reachable_keys : 0, *recalling);
  return recaller_->SearchIfWorth(recalling, request.beyond.wait);
}

bool Core::BeyondIsQuiet() {
  Section section(&chunks_, Section::Kind::kNotMeasured);
  return remote_ == nullptr || remote_->quiet();
}

}  // namespace kvkeep::store_internal
