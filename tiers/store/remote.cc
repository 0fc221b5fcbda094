// What lies beyond the node (remote_tier.h): chunks recalled from there, written and removed there.
//
// A recall asks the source which of the chunks that this node has not it has; takes space in G2 for
// those, and a slot; and reads them as any promotion is read. A chunk that does not come is gone
// again, unless somebody reads it: then that is told, and it goes with its last reader.
//
// Why no deleted chunk comes back: its name is in RemoteRemovals until its image is removed and the
// searches that began before are over (MayRecall). One that is being written while it is deleted
// is removed after its write; one that is on its way here, once that has ended. A process that ends
// before leaves the name to the next one, in a log (removal_journal.h).
#include <algorithm>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/beyond_limits.h"
#include "tiers/store/core.h"
#include "tiers/store/encrypted_image.h"
#include "tiers/store/guarded_header.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {

// One call of Recall, AskBeyond or LookupOrSearch.
struct Core::Recalling {
  ReadQueue::Requester requester;
  TenantId owner;  // of the namespace
  RemoteRemovals::Moment began = 0;
  std::vector<ChunkId> ids;
  uint64_t left = 1;  // chunks under way, and the call itself until all were begun
  uint64_t came = 0;
  RecallCallback done;

  // ---- of AskBeyond and LookupOrSearch
  SearchedCallback searched;  // once what is worth it is on its way, or nothing is
  bool head_run = false;  // what is behind a chunk that is not there is of no use
  MonotonicTime asked_at{0}, answer_by{0};
  std::chrono::nanoseconds recompute_per_key{0};  // 0: not known
  // So long its caller waits for what the answer promises. 0: until `deadline`.
  std::chrono::nanoseconds wait{0};
  MonotonicTime deadline{MonotonicTime::max()};  // from then on nobody wants what was begun

  std::chrono::nanoseconds RecomputeTime(size_t first_ids) const;
};

// What it costs not to have the first of its chunks.
std::chrono::nanoseconds Core::Recalling::RecomputeTime(size_t first_ids) const {
  uint64_t keys = 0;
  for (size_t i = 0; i < first_ids; ++i) keys += i == 0 || ids[i].key != ids[i - 1].key;
  return keys * recompute_per_key;
}

// A search for what a lookup by this request lacks.
std::shared_ptr<Core::Recalling> Core::NewRecalling(const LookupRequest& request,
                                                    SearchedCallback searched) {
  auto recalling = std::make_shared<Recalling>();
  recalling->searched = std::move(searched);
  recalling->head_run = request.lease_mode != LeaseMode::kAllPresent;
  recalling->asked_at = deps_.clock->Now();
  recalling->recompute_per_key = request.beyond.recompute_per_key;
  if (request.beyond.recompute_per_key.count() == 0) recalling->wait = request.beyond.wait;
  return recalling;
}

absl::Status Core::MayAskBeyond(TenantId asks) {
  if (remote_ == nullptr) return absl::UnavailableError("nothing lies beyond the node");
  if (draining_ || !remote_->readable() || !remote_->recalls.May(asks)) {
    ++remote_->counters.recalls_refused;
    return absl::UnavailableError(
        draining_                ? "the daemon is draining"
        : !remote_->readable()   ? "what lies beyond the node does not answer"
                                 : "too many recalls are under way");
  }
  return absl::OkStatus();
}

// Before the table is looked at: what is deleted from here on is not believed.
void Core::BeginRecalling(const SessionToken& token, const Session& session,
                          const NamespaceDigest& ns, Recalling& recalling) {
  recalling.owner = owners_.OwnerOf(ns);
  recalling.requester = {session.tenant(), token};
  recalling.began = remote_->removals.BeginSearch();
  remote_->recalls.Begin(recalling.requester.tenant);  // MayAskBeyond has looked
}

// The keys were charged by who called first.
void Core::Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done) {
  LookupState lookup(chunks, options_);
  auto recalling = std::make_shared<Recalling>();
  recalling->done = std::move(done);
  Section section(&chunks_);
  const absl::StatusOr<Session*> session =
      sessions_.FindUncharged(token, chunks, &Grants::read);
  absl::Status may = session.ok() ? MayAskBeyond((*session)->tenant()) : session.status();
  if (!may.ok()) return CallLater(std::move(recalling->done), std::move(may));
  BeginRecalling(token, **session, chunks.ns, *recalling);
  FindAll(section, recalling->owner, lookup, false);
  NameMissing(section, lookup, 0, *recalling);
  if (recalling->ids.empty()) return EndRecall(*recalling);
  if (!remote_->MayFind(chunks.ns)) {
    CallLater(std::exchange(recalling->done, nullptr),
              absl::UnavailableError("what lies beyond the node was asked enough for now"));
    return EndRecall(*recalling);
  }
  Search(recalling, MonotonicTime::max());
}

void Core::AskBeyond(const SessionToken& token, const LookupRequest& request,
                     absl::AnyInvocable<void(bool) &&> asked) {
  LookupState lookup(request.chunks, options_);
  lookup.coming_parts.assign(request.chunks.keys.size(), 0);
  // Told by the search, or here where there is none.
  const auto tell = std::make_shared<absl::AnyInvocable<void(bool) &&>>(std::move(asked));
  const auto recalling = NewRecalling(request, [tell] { std::move(*tell)(true); });
  Section section(&chunks_);
  const auto not_asked = [&]() STORE_LOCKED {
    Later([tell] { std::move(*tell)(false); });
  };
  // What is wrong with the request is said by the call that follows.
  const absl::StatusOr<Session*> session =
      sessions_.FindUncharged(token, request.chunks, &Grants::read);
  if (!session.ok() || !sessions_.AskRates(**session, true, false).ok()) return not_asked();
  if (!request.beyond.asks() || !MayAskBeyond((*session)->tenant()).ok()) return not_asked();
  BeginRecalling(token, **session, request.chunks.ns, *recalling);
  FindAll(section, recalling->owner, lookup, false);
  if (!SearchIfWorth(section, request, lookup, recalling)) not_asked();
}

// Searches for what the lookup lacks. Returns false, and has ended the recall, if that is not worth
// it.
bool Core::SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                         const std::shared_ptr<Recalling>& recalling) {
  const std::chrono::nanoseconds by_cost =
      recalling->recompute_per_key * static_cast<int64_t>(request.chunks.keys.size());
  PromiseWhatComes(lookup, recalling->asked_at + std::max(by_cost, recalling->wait));
  NameMissing(section, lookup, recalling->head_run ? lookup.reachable_keys : 0, *recalling);
  if (!IsWorthAsking(*recalling)) {
    EndRecall(*recalling);
    return false;
  }
  recalling->answer_by = recalling->asked_at + request.beyond.wait;
  asking_.push_back(recalling);
  Search(recalling, recalling->answer_by);
  return true;
}

// Those whose source is late, as one that hangs may be: what it finds later comes all the same.
void Core::AnswerOverdue() {
  const MonotonicTime now = deps_.clock->Now();
  std::erase_if(asking_, [&](const std::shared_ptr<Recalling>& recalling) {
    chunks_.AssertHeld();
    if (recalling->searched && now >= recalling->answer_by) {
      ++remote_->counters.overdue_searches;
      Later(std::exchange(recalling->searched, nullptr));
    }
    return !recalling->searched;
  });
  TellOfLatePromises();
}

void Core::Promise(ChunkSlot slot, MonotonicTime until) {
  Promotion& promotion = *promotions_.at(slot);
  const bool waits = promotion.promised() < MonotonicTime::max() &&
                     promotion.promised() > deps_.clock->Now();
  promotion.Promise(until);
  if (!waits) remote_->promised.emplace(until, slot);  // else it is looked at again then
}

// Others have asked for it; who asks now is promised it as well.
void Core::PromiseWhatComes(const LookupState& lookup, MonotonicTime until) {
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !table_.StillIs(slot, lookup.id(i))) continue;
    const Chunk& chunk = table_.at(slot);
    if (!chunk.recalled || chunk.g2_state != G2State::kReading) continue;
    const MonotonicTime promised = promotions_.at(slot)->promised();
    if (promised < until) Promise(slot, until);
  }
  Count(static_cast<uint32_t>(work::kLook * lookup.found.size()));
}

// They do not wait longer than they said. What they wait for comes all the same.
void Core::TellOfLatePromises() {
  const MonotonicTime now = deps_.clock->Now();
  auto& promised = remote_->promised;
  while (!promised.empty() && promised.begin()->first <= now && !Spent()) {
    const ChunkSlot slot = promised.begin()->second;
    promised.erase(promised.begin());
    Count(work::kFind);
    const auto found = promotions_.find(slot);
    // It may have ended, and the slot be another chunk's.
    if (found == promotions_.end() || found->second->from() != remote_.get()) continue;
    const MonotonicTime until = found->second->promised();
    if (until > now) {
      if (until < MonotonicTime::max()) promised.emplace(until, slot);
      continue;
    }
    Promotion::Callbacks late = found->second->TakeImpatient();
    remote_->counters.late_waits += late.size();
    TellFirst(std::move(late), absl::UnavailableError("the chunk is late from beyond the node"));
  }
}

// Those that are in no tier, from a key on.
void Core::NameMissing(Section& section, const LookupState& lookup, size_t first, Recalling& to) {
  for (size_t i = first * lookup.chunks.parts.size(); i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    if (lookup.found[i].slot != kNoSlot) continue;
    if (to.ids.size() >= RemoteTier::kMostChunksARecall) break;
    to.ids.push_back(lookup.id(i));
  }
}

// Whether it may pay to search for them. A turn of a conversation lacks its last few keys alone:
// nobody is asked for those.
bool Core::IsWorthAsking(const Recalling& recalling) {
  if (recalling.ids.empty()) return false;
  Count(static_cast<uint32_t>(work::kLook * recalling.ids.size()));
  const bool cost_known = recalling.recompute_per_key.count() > 0;
  const size_t least = cost_known ? RemoteTier::kLeastChunksByCost : RemoteTier::kLeastChunks;
  const bool computable = recalling.recompute_per_key < kNotComputable;
  if (computable && recalling.ids.size() < least) {
    ++remote_->counters.declined_few;
    return false;
  }
  if (cost_known && !IsFaster(recalling, recalling.ids.size(), 0)) return false;
  return remote_->MayFind(recalling.ids.front().ns);
}

// Whether so many bytes come well before the first of the chunks are computed.
bool Core::IsFaster(const Recalling& recalling, size_t chunks, uint64_t bytes) {
  const auto wait = remote_->reads.TimeFor(recalling.requester, bytes, false);
  const std::chrono::nanoseconds recompute = recalling.RecomputeTime(chunks);
  if (wait <= recompute / 10 * 7) return true;
  ++remote_->counters.declined_cost;
  return false;
}

void Core::Search(const std::shared_ptr<Recalling>& recalling, MonotonicTime deadline) {
  ++remote_->counters.searches;
  remote_->counters.searched_chunks += recalling->ids.size();
  Later([this, recalling, deadline, source = &remote_->source()] {
    const auto wanted = recalling->head_run ? RemoteSource::Wanted::kLeadingRun
                                            : RemoteSource::Wanted::kAny;
    source->Find(recalling->ids, wanted, deadline,
                 [this, recalling](const RemoteSource::Found& found) {
                   OnFound(recalling, found);
                 });
  });
}

// When nothing of it is left.
void Core::EndRecall(Recalling& recalling) {
  KVKEEP_CHECK(recalling.left > 0);
  if (--recalling.left > 0) return;
  remote_->removals.EndSearch(recalling.began);
  remote_->recalls.End(recalling.requester.tenant);
  if (recalling.done) CallLater(std::move(recalling.done), recalling.came);
}

void Core::OnFound(std::shared_ptr<Recalling> recalling, const RemoteSource::Found& found) {
  Section section(&chunks_);
  KVKEEP_CHECK(found.size() == recalling->ids.size());
  const size_t wanted = WantedOf(*recalling, found);
  for (size_t i = 0; i < wanted; ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    if (!found[i].has_value()) continue;
    // Full: the rest would not fit either, and the first ones of a prompt are worth the most.
    if (!BeginRecall(section, recalling, i, *found[i])) break;
  }
  if (recalling->searched) {
    Later(std::exchange(recalling->searched, nullptr));
    std::erase(asking_, recalling);  // as many as there are recalls at most
  }
  EndRecall(*recalling);
}

// So many of the chunks, from the first, are to come here as far as they were found.
size_t Core::WantedOf(Recalling& recalling, const RemoteSource::Found& found) {
  size_t run = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].has_value() && recalling.head_run) break;
    if (!found[i].has_value()) continue;
    ++remote_->counters.found_chunks;
    if (ValidateShape(*found[i]).ok()) bytes += found[i]->blocks().value() * kBlockBytes;
    run = i + 1;
  }
  Count(static_cast<uint32_t>(work::kLook * found.size()));
  if (run == 0 || recalling.recompute_per_key.count() == 0) return run;
  if (!IsFaster(recalling, run, bytes)) return 0;
  recalling.deadline = recalling.asked_at + recalling.RecomputeTime(run);
  return run;
}

bool Core::MayRecall(const Recalling& recalling, const ChunkId& id) const {
  return !draining_ && table_.Find(id) == kNoSlot &&
         (Planted(Canary::kDeletedRecalled) ||
          remote_->removals.MayBeBelieved(id, recalling.began));
}

// False: there is no space. May yield.
bool Core::BeginRecall(Section& section, const std::shared_ptr<Recalling>& recalling, size_t i,
                       const ImageShape& shape) {
  const ChunkId& id = recalling->ids[i];
  const TenantId owner = recalling->owner;
  if (!HasPool(owner) || !ValidateShape(shape).ok() || !MayRecall(*recalling, id)) return true;
  const uint64_t blocks = shape.blocks().value();
  const auto may_take = [&]() STORE_LOCKED {
    return pool(owner).recalling_blocks + blocks <=
           pool(owner).capacity_blocks() / RemoteTier::kPartOfG2;
  };
  ChunkSlot parent = i == 0 ? kNoSlot : table_.Find(recalling->ids[i - 1]);
  const bool room = may_take() && (!table_.full() || MakeRoomInTable(section, owner));
  std::optional<ExtentList> extents;
  if (room) extents = chunks_.Allocate(section, owner, blocks, parent);
  if (!extents.has_value()) {
    ++remote_->counters.no_space;
    return false;
  }
  // Much may have come in between.
  if (!MayRecall(*recalling, id) || table_.full() || !may_take()) {
    pool(owner).Free(*extents);
    return true;
  }
  const ChunkSlot slot = chunks_.Create(id, shape);
  KVKEEP_CHECK(slot != kNoSlot);
  {
    Change chunk(&chunks_, slot);
    KVKEEP_CHECK(chunk->tenant == owner);  // in whose pool the space is
    chunk->g2 = *std::move(extents);
    chunks_.SetG2State(*chunk, G2State::kReading);
    chunk->recalled = true;
    chunks_.InsertIntoPolicy(slot, kNoSlot);
  }
  pool(owner).recalling_blocks += blocks;
  ++recalling->left;
  remote_->recalling.insert(id);
  StartPromotion(*remote_, recalling->requester, slot, recalling->deadline);
  if (recalling->wait.count() > 0) Promise(slot, deps_.clock->Now() + recalling->wait);
  AwaitAll(*promotions_.at(slot),
           [this, recalling, bytes = shape.payload_bytes](const absl::Status& status) {
             OnRecalled(recalling, bytes, status);
           });
  return true;
}

// Its last byte has ended: its space is its own from here on, or free.
void Core::EndRecallRead(const Chunk& chunk) {
  const auto recalling = remote_->recalling.find(chunk.id);
  KVKEEP_CHECK(chunk.recalled && recalling != remote_->recalling.end());
  KVKEEP_CHECK(pool(chunk).recalling_blocks >= chunk.blocks());
  pool(chunk).recalling_blocks -= chunk.blocks();
  remote_->recalling.erase(recalling);
  PumpLater(*remote_);  // it may be removed there now
}

void Core::OnRecalled(const std::shared_ptr<Recalling>& by, uint64_t bytes,
                      const absl::Status& status) {
  Section section(&chunks_);
  if (status.ok()) {
    ++by->came;
    ++remote_->counters.recalled_chunks;
    remote_->counters.recalled_bytes += bytes;
  } else {
    ++remote_->counters.failed_recalls;
  }
  EndRecall(*by);
}

bool Core::BeyondIsQuiet() {
  Section section(&chunks_, Section::Kind::kNotMeasured);
  return remote_ == nullptr || (!remote_->reads.busy() && !remote_->writes.busy() &&
                                remote_->recalls.all() == 0 && !remote_->removals.busy() &&
                                remote_->journal.at_rest() &&
                                !remote_->ages.busy());
}

// ---- down

void Core::PumpRemote() {
  RemoteTier& remote = *remote_;
  // What is there beyond the node outlives this process as it is.
  if (draining_ && !drains_to_remote_) return;
  // Whoever reads it reads it to its end.
  const auto in_use = [&remote](const ChunkId& id) {
    return remote.writes.IsWriting(id) || remote.recalling.contains(id);
  };
  // What is full takes removals: it gets room by them.
  while (remote.readable()) {
    const std::optional<ChunkId> id = remote.removals.Next(
        in_use, [&remote](const ChunkId& of) { return remote.source().TakeQuestion(of.ns); });
    if (!id.has_value()) break;
    Count(work::kStart);
    Later([this, id = *id, source = &remote.source()] {
      source->Remove(id, [this, id](const absl::Status& status) {
        OnRemovedFromRemote(id, status);
      });
    });
    if (Spent()) return PumpLater(remote);
  }
  PumpAges();
  const MonotonicTime now = deps_.clock->Now();
  while (remote.writes.anyone_waits() && remote.writable()) {
    if (Spent()) return PumpLater(remote);
    if (remote.write_rate.Wait(now).has_value()) return;  // Tick comes back to it
    Count(work::kFind);
    const RemoteWrites::Offered next = remote.writes.next();
    const ChunkSlot slot = table_.Find(next.id);
    const bool there = slot != kNoSlot && ReadableNow(table_.at(slot)) &&
                       !remote.writes.IsMissing(next.parent);
    if (!there || table_.at(slot).sending) {
      if (slot != kNoSlot && !there) {
        table_.at(slot).beyond = RemoteAges::kUnknown;
        if (!next.replace) remote.SetUnwritten(slot, true);
      }
      if (!there) remote.writes.NoteMissing(next.id);
      ++(next.replace ? remote.counters.dropped_refreshes : remote.counters.dropped_chunks);
      remote.writes.Pop();
      continue;
    }
    if (!remote.writes.MayBegin(table_.at(slot).blocks() * kBlockBytes)) return;
    remote.writes.Pop();
    remote.write_rate.Take(table_.at(slot).blocks() * kBlockBytes);
    Count(work::kStart);
    StartRemoteWrite({slot, next, remote.source().epoch()});
  }
}

void Core::StartRemoteWrite(RemoteWrites::Sent sent) {
  const ChunkSlot slot = sent.slot;
  // Its bytes stay, as they do for a reader; what leases may hold is another matter.
  KVKEEP_CHECK(!table_.at(slot).sending && ReadableNow(table_.at(slot)));
  Change(&chunks_, slot)->sending = true;
  const Chunk& chunk = table_.at(slot);
  const uint64_t bytes = chunk.blocks() * kBlockBytes;
  remote_->writes.Begin(chunk.id, bytes);
  Later([this, sent, bytes, g2 = chunk.g2, key = remote_write_keys_[chunk.tenant.value()],
         remote = remote_.get(), placement = remote_->PlacementOf(chunk)] {
    deps_.copy_executor->Post([this, sent, bytes, g2, key, remote, placement] {
      absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(g2), deps_.mac_key);
      // DRAM went bad: better nowhere else than a wrong image.
      if (!header.ok()) return OnRemoteWritten(sent, bytes, header.status());
      header->placement = placement;
      SubmitRemoteWrite(*remote, sent, ArenaImage(deps_.arena, g2), *std::move(header), *key);
    });
  });
}

void Core::SubmitRemoteWrite(RemoteTier& remote, RemoteWrites::Sent sent, ArenaImage image,
                             ImageHeader header, const DataKey& key) {
  const ChunkId id = header.identity.id;
  const ImageShape shape = header.identity.shape;
  const auto encrypted = EncryptedImage::Make(std::move(header), key, image, remote.mac_key,
                                              *cipher_buffers_, deps_.random);
  if (!encrypted.ok()) {
    return OnRemoteWritten(sent, shape.blocks().value() * kBlockBytes, encrypted.status());
  }
  const std::shared_ptr<const EncryptedImage>& bytes = *encrypted;  // kept until the end
  remote.Write({.id = id,
                .shape = shape,
                .extents = {},
                .header = bytes->header(),
                .from = [bytes](uint64_t offset,
                                uint64_t most) { return bytes->Run(offset, most); },
                .done =
                    [this, sent, bytes](uint64_t ended, const absl::Status& status) {
                      OnRemoteWritten(sent, ended, status);
                    },
                .replace = sent.what.replace,
                .epoch = sent.epoch});
}

void Core::OnRemoteWritten(RemoteWrites::Sent sent, uint64_t bytes, const absl::Status& status) {
  Section section(&chunks_);
  RemoteTier& remote = *remote_;
  Chunk& chunk = table_.at(sent.slot);
  KVKEEP_CHECK(chunk.sending);  // so it is still in that slot
  remote.writes.End(chunk.id, bytes);
  if (status.ok() || absl::IsAlreadyExists(status)) {
    RemoteCounters& counters = remote.counters;
    ++(sent.what.replace ? counters.refreshed_chunks : counters.written_chunks);
    (sent.what.replace ? counters.refreshed_bytes : counters.written_bytes) +=
        chunk.shape.payload_bytes;
  } else {
    ++remote.counters.failed_writes;
    remote.writes.NoteMissing(chunk.id);
  }
  // Of one that was there nobody told its age.
  chunk.beyond = status.ok() ? remote.ages.At(deps_.clock->Now()) : RemoteAges::kUnknown;
  const ChunkId id = chunk.id;
  const bool failed = !status.ok() && !absl::IsAlreadyExists(status);
  Change(&chunks_, sent.slot)->sending = false;
  // Unless it was deleted meanwhile.
  if (failed && !sent.what.replace && table_.Find(id) == sent.slot && remote.OfferAgain(sent)) {
    table_.at(sent.slot).beyond = RemoteAges::kUnderWay;
  }
  PumpLater(remote);
}

void Core::RemoveFromRemote(const ChunkId& id, RemoteRemovals::Why why) {
  if (remote_ == nullptr) return;
  Count(work::kFind);
  if (remote_->removals.Add(id, why)) remote_->journal.Deleted(id);
  PumpLater(*remote_);
}

void Core::PumpRemovalLog() {
  std::optional<RemovalJournal::Writing> next = remote_->journal.Take();
  if (!next.has_value()) return;
  const auto ended = [this](const absl::Status& status) {
    Section section(&chunks_);
    if (!status.ok()) ++remote_->counters.failed_removal_notes;
    remote_->journal.End(status, hold_);
    PumpRemovalLog();
  };
  Later([log = remote_->journal.log(), next = *std::move(next), ended]() mutable {
    if (log == nullptr) return ended(absl::OkStatus());
    log->Write(std::move(next.notes), next.sync, ended);
  });
}

void Core::OnRemovedFromRemote(const ChunkId& id, const absl::Status& status) {
  Section section(&chunks_);
  ++(status.ok() ? remote_->counters.removed_chunks : remote_->counters.failed_removals);
  if (remote_->removals.End(id, status.ok())) remote_->journal.Ended(id);
  PumpRemovalLog();
  PumpLater(*remote_);
}

}  // namespace kvkeep::store_internal
