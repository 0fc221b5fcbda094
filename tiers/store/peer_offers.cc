#include "tiers/store/peer_offers.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"

namespace kvkeep::store_internal {

struct PeerOffers::Taking {
  std::vector<OfferedChunk> offered;
  OfferAnswer answer;
  OfferCallback done;
};

PeerOffers::PeerOffers(const Clock* clock, size_t tenants, Parts parts)
    : clock_(*clock),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      owners_(*parts.owners),
      reads_(*parts.reads),
      beyond_(parts.beyond),
      displaced_(tenants) {}

// ---- what this node offers

HotChunks PeerOffers::NameHottest(const TenantTags& tenants, size_t most) {
  std::vector<Ranked> ranked, some;
  some.reserve(PeerReads::kVisitedAtOnce);  // not under the lock
  HotChunks named;
  reads_.ForEach(
      tenants,
      [&](ChunkSlot slot, Tier tier) {
        chunks_.AssertHeld();
        some.push_back(Rank(slot, tier));
      },
      [&] {
        named.all += some.size();
        ranked.insert(ranked.end(), some.begin(), some.end());
        some.clear();
        if (ranked.size() > 2 * most) KeepHottest(ranked, most);
        return true;
      });
  KeepHottest(ranked, most);
  for (Ranked& one : ranked) named.hottest.push_back(std::move(one.what));
  return named;
}

PeerOffers::Ranked PeerOffers::Rank(ChunkSlot slot, Tier tier) {
  const Chunk& chunk = chunks_.table.at(slot);
  Ranked ranked{.in_g2 = tier == Tier::kG2, .age = -1, .what = {chunk.id, chunk.shape}};
  const bool known = ranked.in_g2 ? chunk.in_g2_policy : chunk.in_g3_policy;
  if (chunk.in_use()) return ranked;  // parked: the policy does not say how hot it is
  if (!known) {
    ranked.age = std::numeric_limits<int64_t>::max();
    return ranked;
  }
  const EvictionPolicy& policy = ranked.in_g2 ? *chunks_.pool(chunk).policy : tiers_.policy(chunk);
  ranked.age = policy.Newest() - policy.Recency(slot);
  return ranked;
}

void PeerOffers::KeepHottest(std::vector<Ranked>& ranked, size_t most) {
  const size_t kept = std::min(most, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(kept), ranked.end(),
                    [](const Ranked& a, const Ranked& b) {
                      return std::tuple(!a.in_g2, a.age) < std::tuple(!b.in_g2, b.age);
                    });
  ranked.resize(kept);
}

// ---- what others offer

absl::Status PeerOffers::MayTake(TenantId owner) {
  if (beyond_ == nullptr || !chunks_.HasPool(owner)) {
    return absl::FailedPreconditionError("this node takes no chunks of other nodes");
  }
  if (taking_ >= kMostOffers) return absl::ResourceExhaustedError("too many offers are under way");
  // Not Unavailable, which would say that the node is.
  const absl::Status may = beyond_->recaller.MayAsk(owner);
  return may.ok() ? may : absl::ResourceExhaustedError(may.message());
}

void PeerOffers::Take(std::vector<OfferedChunk> offered, OfferCallback done) {
  KVKEEP_CHECK(!offered.empty());
  const auto taking = std::make_shared<Taking>();
  taking->answer.chunks.assign(offered.size(), OfferEnd::kRefused);
  taking->offered = std::move(offered);
  const auto recalling = std::make_shared<Recalling>();
  for (const OfferedChunk& one : taking->offered) recalling->ids.push_back(one.id);
  recalling->in_order = true;
  Section section(&chunks_);
  const TenantId owner = owners_.OwnerOf(recalling->ids.front().ns);
  absl::Status may = MayTake(owner);
  if (!may.ok()) return chunks_.CallLater(std::move(done), std::move(may));
  ++taking_;
  ++counters_.offers;
  counters_.offered_chunks += taking->offered.size();
  taking->done = std::move(done);
  recalling->done = [this, taking](const absl::StatusOr<uint64_t>&) { Answer(taking); };
  beyond_->recaller.Begin({owner, ReadQueue::kPeers}, owner, *recalling);
  for (size_t i = 0; i < taking->offered.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    const OfferedChunk& one = taking->offered[i];
    if (reads_.TierOf(chunks_.table.Find(one.id)).has_value()) {
      taking->answer.chunks[i] = OfferEnd::kHad;
      continue;
    }
    if (chunks_.table.Find(one.id) != kNoSlot) continue;  // it is on its way, or going
    const Room room = MakeRoom(section, owner, one.shape.blocks().value());
    taking->answer.full = room == Room::kNone;
    if (room == Room::kNone) break;
    if (room == Room::kFree && !beyond_->recaller.Bring(section, recalling, i, one.shape)) break;
  }
  beyond_->recaller.End(*recalling);
}

PeerOffers::Room PeerOffers::MakeRoom(Section& section, TenantId owner, uint64_t blocks) {
  G2Pool& pool = chunks_.pool(owner);
  if (pool.recalling_blocks + blocks > pool.capacity_blocks() / kFillingPart) return Room::kLater;
  if (chunks_.table.full()) return Room::kNone;
  while (pool.free_blocks() < blocks) {
    const std::optional<ChunkSlot> victim = pool.policy->Victim();
    if (!victim.has_value()) return Room::kNone;
    const Chunk& chunk = chunks_.table.at(*victim);
    if (!chunk.evictable_from_g2()) {
      pool.policy->Park(*victim);
      chunks_.Count(work::kPark);
    } else if (!Planted(Canary::kOfferEvicts) &&
               (!tiers_.InG3(chunk) || !MayDisplace(owner, chunk))) {
      return Room::kNone;
    } else {
      displaced_[owner.value()].blocks += chunk.blocks();
      ++counters_.displaced_chunks;
      chunks_.Evict(pool, *victim);  // not another one, as the policy may name by now
    }
    section.YieldIfSpent();
  }
  // Free blocks that lie scattered are no room, as an image has few extents.
  return pool.Fits(blocks) && !chunks_.table.full() ? Room::kFree : Room::kNone;
}

bool PeerOffers::MayDisplace(TenantId owner, const Chunk& chunk) {
  Displaced& displaced = displaced_[owner.value()];
  const MonotonicTime now = clock_.Now();
  if (now - displaced.since > kDisplacedIn) displaced = {.since = now, .blocks = 0};
  return displaced.blocks + chunk.blocks() <=
         chunks_.pool(owner).capacity_blocks() / kDisplacedPart;
}

void PeerOffers::Answer(const std::shared_ptr<Taking>& taking) {
  Section section(&chunks_);
  --taking_;
  for (size_t i = 0; i < taking->offered.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    OfferEnd& end = taking->answer.chunks[i];
    const ChunkId& id = taking->offered[i].id;
    if (end != OfferEnd::kRefused || !reads_.TierOf(chunks_.table.Find(id)).has_value()) continue;
    end = OfferEnd::kTaken;
    ++counters_.taken_chunks;
  }
  chunks_.CallLater(std::move(taking->done), std::move(taking->answer));
}

}  // namespace kvkeep::store_internal
