#include "tiers/store/recaller.h"

#include <algorithm>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/beyond_limits.h"
#include "tiers/store/change.h"

namespace kvkeep::store_internal {

std::chrono::nanoseconds Recalling::RecomputeTime(size_t first_ids) const {
  uint64_t keys = 0;
  for (size_t i = 0; i < first_ids; ++i) keys += i == 0 || ids[i].key != ids[i - 1].key;
  return keys * recompute_per_key;
}

Recaller::Recaller(Chunks* chunks, RemoteTier* remote, Promotions* promotions, Host* host,
                   const Clock* clock)
    : chunks_(*chunks),
      remote_(*remote),
      promotions_(*promotions),
      host_(*host),
      clock_(*clock) {}

// ---- asking

absl::Status Recaller::MayAsk(TenantId asks) {
  if (draining_ || !remote_.readable() || !remote_.recalls.May(asks)) {
    ++remote_.counters.recalls_refused;
    return absl::UnavailableError(
        draining_               ? "the daemon is draining"
        : !remote_.readable()   ? "what lies beyond the node does not answer"
                                : "too many recalls are under way");
  }
  return absl::OkStatus();
}

RecallingPtr Recaller::ForLookup(const LookupRequest& request,
                                 absl::AnyInvocable<void() &&> searched) const {
  auto recalling = std::make_shared<Recalling>();
  recalling->searched = std::move(searched);
  recalling->head_run = request.lease_mode != LeaseMode::kAllPresent;
  recalling->asked_at = clock_.Now();
  recalling->recompute_per_key = request.beyond.recompute_per_key;
  if (request.beyond.recompute_per_key.count() == 0) {
    recalling->wait = std::max<std::chrono::nanoseconds>(request.beyond.wait, kLeastWaitForPieces);
  }
  return recalling;
}

void Recaller::Begin(const ReadQueue::Requester& requester, TenantId owner,
                     Recalling& recalling) {
  recalling.owner = owner;
  recalling.requester = requester;
  recalling.began = remote_.removals.BeginSearch();
  remote_.recalls.Begin(requester.tenant);  // MayAsk has looked
}

void Recaller::NameMissing(Section& section, const ChunkSet& chunks, Links found, size_t first_key,
                           Recalling& to) {
  for (size_t i = first_key * chunks.parts.size(); i < found.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    if (found[i].slot != kNoSlot) continue;
    if (to.ids.size() >= RemoteTier::kMostChunksARecall) break;
    to.ids.push_back(chunks.id(i));
  }
}

void Recaller::PromiseWhatComes(const ChunkSet& chunks, Links found, MonotonicTime until) {
  for (size_t i = 0; i < found.size(); ++i) {
    const ChunkSlot slot = found[i].slot;
    if (slot == kNoSlot || !chunks_.table.StillIs(slot, chunks.id(i))) continue;
    const Chunk& chunk = chunks_.table.at(slot);
    if (!chunk.recalled || chunk.g2_state != G2State::kReading) continue;
    if (!promotions_.Find(slot)->keeps_until(until)) Promise(slot, until);
  }
  chunks_.Count(static_cast<uint32_t>(work::kLook * found.size()));
}

bool Recaller::SearchIfWorth(const RecallingPtr& recalling, std::chrono::nanoseconds wait) {
  if (!IsWorthAsking(*recalling)) {
    End(*recalling);
    return false;
  }
  recalling->answer_by = recalling->asked_at + wait;
  asking_.push_back(recalling);
  Send(recalling, recalling->answer_by);
  return true;
}

void Recaller::Search(const RecallingPtr& recalling) {
  if (recalling->ids.empty()) return End(*recalling);
  if (!remote_.MayFind(recalling->ids.front().ns)) {
    chunks_.CallLater(
        std::exchange(recalling->done, nullptr),
        absl::UnavailableError("what lies beyond the node was asked enough for now"));
    return End(*recalling);
  }
  Send(recalling, MonotonicTime::max());
}

// Returns whether a search may be worth it. A turn of a conversation lacks only its last few keys:
// nobody is asked for those.
bool Recaller::IsWorthAsking(const Recalling& recalling) {
  if (recalling.ids.empty()) return false;
  chunks_.Count(static_cast<uint32_t>(work::kLook * recalling.ids.size()));
  const bool cost_known = recalling.recompute_per_key.count() > 0;
  const size_t least = cost_known ? RemoteTier::kLeastChunksByCost : RemoteTier::kLeastChunks;
  const bool computable = recalling.recompute_per_key < kNotComputable;
  if (computable && recalling.ids.size() < least) {
    ++remote_.counters.declined_few;
    return false;
  }
  if (cost_known && !IsFaster(recalling, recalling.ids.size(), 0)) return false;
  return remote_.MayFind(recalling.ids.front().ns);
}

// Returns whether `bytes` bytes come well before the caller could have computed the first `chunks`
// chunks.
bool Recaller::IsFaster(const Recalling& recalling, size_t chunks, uint64_t bytes) {
  const auto wait = remote_.reads.TimeFor(recalling.requester, bytes, false, clock_.Now());
  const std::chrono::nanoseconds recompute = recalling.RecomputeTime(chunks);
  if (wait <= recompute / 10 * 7) return true;
  ++remote_.counters.declined_cost;
  return false;
}

void Recaller::Send(const RecallingPtr& recalling, MonotonicTime deadline) {
  ++remote_.counters.searches;
  remote_.counters.searched_chunks += recalling->ids.size();
  chunks_.Later([this, recalling, deadline] {
    const auto wanted = recalling->head_run ? RemoteSource::Wanted::kLeadingRun
                                            : RemoteSource::Wanted::kAny;
    remote_.source().Find(recalling->ids, wanted, deadline,
                          [this, recalling](const RemoteSource::Found& found) {
                            OnFound(recalling, found);
                          });
  });
}

// ---- bringing

void Recaller::OnFound(RecallingPtr recalling, const RemoteSource::Found& found) {
  Section section(&chunks_);
  KVKEEP_CHECK(found.size() == recalling->ids.size());
  const size_t wanted = WantedOf(*recalling, found);
  for (size_t i = 0; i < wanted; ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    if (!found[i].has_value()) continue;
    // G2 is full, so the others would not fit either. A prompt's first chunks are worth the most.
    if (!Bring(section, recalling, i, *found[i])) break;
  }
  if (recalling->searched) {
    chunks_.Later(std::exchange(recalling->searched, nullptr));
    std::erase(asking_, recalling);  // has no more entries than there are recalls
  }
  End(*recalling);
}

// Returns how many of the chunks, from the first one on, are wanted here, if they were found.
size_t Recaller::WantedOf(Recalling& recalling, const RemoteSource::Found& found) {
  size_t run = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].has_value() && recalling.head_run) break;
    if (!found[i].has_value()) continue;
    ++remote_.counters.found_chunks;
    if (ValidateShape(*found[i]).ok()) bytes += found[i]->blocks().value() * kBlockBytes;
    run = i + 1;
  }
  chunks_.Count(static_cast<uint32_t>(work::kLook * found.size()));
  if (run == 0 || recalling.recompute_per_key.count() == 0) return run;
  if (!IsFaster(recalling, run, bytes)) return 0;
  recalling.deadline = recalling.asked_at + recalling.RecomputeTime(run);
  return run;
}

bool Recaller::MayBring(const Recalling& recalling, const ChunkId& id) const {
  return !draining_ && chunks_.table.Find(id) == kNoSlot &&
         (Planted(Canary::kDeletedRecalled) ||
          remote_.removals.MayBeBelieved(id, recalling.began));
}

bool Recaller::Bring(Section& section, const RecallingPtr& recalling, size_t i,
                     const ImageShape& shape) {
  const ChunkId& id = recalling->ids[i];
  const TenantId owner = recalling->owner;
  if (!chunks_.HasPool(owner) || !ValidateShape(shape).ok() || !MayBring(*recalling, id)) {
    return true;
  }
  G2Pool& pool = chunks_.pool(owner);
  const uint64_t blocks = shape.blocks().value();
  const auto may_take = [&pool, blocks] {
    return pool.recalling_blocks + blocks <= pool.capacity_blocks() / RemoteTier::kPartOfG2;
  };
  const ChunkSlot parent = i == 0 ? kNoSlot : chunks_.table.Find(recalling->ids[i - 1]);
  const bool room =
      may_take() && (!chunks_.table.full() || host_.MakeRoomInTable(section, owner));
  std::optional<ExtentList> extents;
  if (room) extents = chunks_.Allocate(section, owner, blocks, parent);
  if (!extents.has_value()) {
    ++remote_.counters.no_space;
    return false;
  }
  // Allocate may have yielded, so much may have changed.
  if (!MayBring(*recalling, id) || chunks_.table.full() || !may_take()) {
    pool.Free(*extents);
    return true;
  }
  const ChunkSlot slot = chunks_.Create(id, shape);
  KVKEEP_CHECK(slot != kNoSlot);
  {
    Change chunk(&chunks_, slot);
    chunks_.GiveCopy(*chunk, owner, *std::move(extents), G2State::kReading);
    chunk->recalled = true;
    const bool behind = recalling->in_order && parent != kNoSlot &&
                        chunks_.table.StillIs(parent, recalling->ids[i - 1]);
    chunks_.InsertIntoPolicy(slot, behind ? parent : kNoSlot);
  }
  pool.recalling_blocks.Take(blocks);
  ++recalling->left;
  remote_.recalling.insert(id);
  promotions_.Start(remote_, recalling->requester, slot, recalling->deadline);
  if (recalling->wait.count() > 0) WaitForPieces(*recalling, slot);
  promotions_.AwaitAll(*promotions_.Find(slot),
                 [this, recalling, bytes = shape.payload_bytes](const absl::Status& status) {
                   OnBrought(recalling, bytes, status);
                 });
  return true;
}

void Recaller::OnReadEnded(const Chunk& chunk) {
  const auto recalling = remote_.recalling.find(chunk.id);
  KVKEEP_CHECK(chunk.recalled && recalling != remote_.recalling.end());
  chunks_.pool(chunk).recalling_blocks.Give(chunk.blocks());
  remote_.recalling.erase(recalling);
  chunks_.PumpLater(remote_.pump);  // now its image there may be removed
}

void Recaller::OnBrought(const RecallingPtr& by, uint64_t bytes, const absl::Status& status) {
  Section section(&chunks_);
  if (status.ok()) {
    ++by->came;
    ++remote_.counters.recalled_chunks;
    remote_.counters.recalled_bytes += bytes;
  } else {
    ++remote_.counters.failed_recalls;
  }
  End(*by);
}

void Recaller::End(Recalling& recalling) {
  KVKEEP_CHECK(recalling.left > 0);
  if (--recalling.left > 0) return;
  remote_.removals.EndSearch(recalling.began);
  remote_.recalls.End(recalling.requester.tenant);
  if (recalling.done) chunks_.CallLater(std::move(recalling.done), recalling.came);
}

// ---- waiting

void Recaller::Tick() {
  const MonotonicTime now = clock_.Now();
  // The source of these is late; it may hang. Chunks that it finds later are brought all the same.
  std::erase_if(asking_, [&](const RecallingPtr& recalling) {
    chunks_.AssertHeld();
    if (recalling->searched && now >= recalling->answer_by) {
      ++remote_.counters.overdue_searches;
      chunks_.Later(std::exchange(recalling->searched, nullptr));
    }
    return !recalling->searched;
  });
  TellOfLatePromises();
}

void Recaller::WaitForPieces(Recalling& recalling, ChunkSlot slot) {
  const MonotonicTime now = clock_.Now();
  if (recalling.shared_wait == nullptr) {
    recalling.shared_wait = std::make_shared<SharedWait>(recalling.wait, now);
  }
  promotions_.Find(slot)->WaitWith(recalling.shared_wait);
  Promise(slot, now + recalling.wait);
}

void Recaller::Promise(ChunkSlot slot, MonotonicTime until) {
  Promotion& promotion = *promotions_.Find(slot);
  const bool waits = promotion.may_be_late(clock_.Now());
  promotion.Promise(until);
  if (!waits) remote_.promised.emplace(until, slot);  // else its entry is moved when it is due
}

// Tells callers that have waited as long as they said. The chunks come all the same.
void Recaller::TellOfLatePromises() {
  const MonotonicTime now = clock_.Now();
  auto& promised = remote_.promised;
  while (!promised.empty() && promised.begin()->first <= now && !chunks_.Spent()) {
    const ChunkSlot slot = promised.begin()->second;
    promised.erase(promised.begin());
    chunks_.Count(work::kFind);
    Promotion* const promotion = promotions_.Find(slot);
    // The promotion may have ended, and the slot may be another chunk's by now.
    if (promotion == nullptr || promotion->from() != &remote_) continue;
    const MonotonicTime until = promotion->promised();
    if (until > now) {
      if (until < MonotonicTime::max()) promised.emplace(until, slot);
      continue;
    }
    Promotion::Callbacks late = promotion->TakeImpatient();
    remote_.counters.late_waits += late.size();
    promotions_.TellFirst(std::move(late),
                    absl::UnavailableError("the chunk is late from beyond the node"));
  }
}

}  // namespace kvkeep::store_internal
