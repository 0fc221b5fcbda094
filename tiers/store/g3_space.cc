// Space in G3: on which device, within the tenant's quota, and who gives some up (shares.h).
//
// Extents are never reused before the index batch that removes their record is committed, nor
// before their last reader is done. A tenant's quota and share are of what its chunks hold on all
// devices together: what is on its way out counts no more.
#include <algorithm>
#include <tuple>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

// What a queue may be longer than another's, in chunks, before its device counts as slow.
constexpr size_t kLongerQueue = 64;
constexpr uint64_t kBlocksOfQueued = 256;  // of a chunk that waits: a guess
// One that was away or slow catches up with no more of itself than this.
constexpr double kMostBehind = 0.25;
// What a device may be fuller than another, or ahead of it, and still get its chunks' children.
constexpr double kSlack = 1.0 / 16;

// How a device suits a new chunk. While there is space that nobody has to give, devices fill up
// alike; then all are turned over alike, so that a chunk lives as long on a small device as on a
// large one. One that cannot keep up gets what it can take.
struct Suits {
  bool room = false;      // there is some, or somebody would give it
  bool keeps_up = false;  // the queue is not much longer than others'
  double free_share = 0;  // what is free for new chunks, of all that it holds
  double given = 0;       // all that was ever queued for it, of the same

  bool operator>(const Suits& other) const {
    return std::tuple(room, keeps_up, free_share, -given) >
           std::tuple(other.room, other.keeps_up, other.free_share, -other.given);
  }
  bool IsNearly(const Suits& best) const {
    return room >= best.room && keeps_up >= best.keeps_up &&
           free_share + kSlack >= best.free_share && given <= best.given + kSlack;
  }
};

double GivenOf(const DeviceTier& tier) {
  return static_cast<double>(tier.writes.given_blocks()) /
         static_cast<double>(std::max<uint64_t>(tier.capacity_blocks, 1));
}

Suits HowItSuits(const DeviceTier& tier, uint64_t blocks, bool room, size_t shortest_queue) {
  const auto capacity = static_cast<double>(std::max<uint64_t>(tier.capacity_blocks, 1));
  const uint64_t taken = tier.reserve_blocks + kBlocksOfQueued * tier.writes.waiting();
  const uint64_t spare = tier.free_blocks() - std::min(tier.free_blocks(), taken);
  // What an eviction leaves over is no space to fill: it would draw every chunk there.
  return {.room = room,
          .keeps_up = tier.writes.waiting() <= shortest_queue + kLongerQueue,
          .free_share = spare >= blocks ? static_cast<double>(spare) / capacity : 0,
          .given = GivenOf(tier)};
}

void ForgiveWhoIsBehind(const std::vector<std::unique_ptr<DeviceTier>>& devices) {
  double most = 0;
  for (const auto& tier : devices) {
    if (tier->writable()) most = std::max(most, GivenOf(*tier));
  }
  for (const auto& tier : devices) {
    if (!tier->writable() || GivenOf(*tier) >= most - kMostBehind) continue;
    const auto capacity = static_cast<double>(tier->capacity_blocks);
    tier->writes.SetGiven(static_cast<uint64_t>((most - kMostBehind) * capacity));
  }
}

}  // namespace

bool Core::AnyJoins() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& tier) {
    return tier->presence == DeviceTier::Presence::kJoining;
  });
}

bool Core::HasG3Room(DeviceTier& tier, const Chunk& chunk) {
  if (tier.free_blocks() >= chunk.blocks()) return true;
  return g3_shares_
      .ChooseDonor(chunk.tenant, chunk.blocks(), [&tier](TenantId t) { return tier.CanGive(t); })
      .has_value();
}

// The device that suits best; for a child its parent's, so that recalling a prefix is one long
// read, as long as that suits nearly as well: what all prompts begin with would draw all of them to
// one device. Nothing when no device takes writes.
DeviceTier* Core::ChooseDevice(const Chunk& chunk, ChunkSlot parent) {
  size_t shortest_queue = SIZE_MAX;
  for (const auto& tier : devices_) {
    if (tier->writable()) shortest_queue = std::min(shortest_queue, tier->writes.waiting());
  }
  ForgiveWhoIsBehind(devices_);
  DeviceTier *parents = nullptr, *best = nullptr;
  if (parent != kNoSlot && table_.at(parent).g3_state != G3State::kAbsent) {
    parents = devices_[table_.at(parent).device].get();
  }
  Suits parents_suits, best_suits;
  for (const auto& tier : devices_) {
    if (!tier->writable()) continue;
    const Suits suits = HowItSuits(*tier, chunk.blocks(), HasG3Room(*tier, chunk), shortest_queue);
    if (parents == tier.get()) parents_suits = suits;
    if (best != nullptr && !(suits > best_suits)) continue;
    best = tier.get();
    best_suits = suits;
  }
  const bool stays = best != nullptr && parents != nullptr && parents_suits.IsNearly(best_suits);
  return stays ? parents : best;
}

Evicted Core::EvictOneFromG3(DeviceTier& tier, TenantId from) {
  EvictionPolicy& policy = tier.policy(from);
  while (const std::optional<ChunkSlot> victim = policy.Victim()) {
    if (table_.at(*victim).g3_reading) {
      policy.Park(*victim);
      Count(work::kPark);
      if (Spent()) return Evicted::kSpent;
      continue;
    }
    Change chunk(&chunks_, *victim);
    KVKEEP_CHECK(chunk->device == tier.number && chunk->tenant == from);
    ++counters_.g3_evictions;
    ++tenant_counters_[from.value()].g3_evictions;
    RemoveFromG3(*chunk, *victim, EvictionPolicy::EraseReason::kEvicted);
    Count(work::kEvict);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

Core::Room Core::MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks) {
  const uint64_t quota = g3_shares_.quota(tenant);
  if (quota > 0 && blocks > quota) return Room::kNone;
  // What a device brings that joins may be more: the oldest of all goes when it is here.
  if (AnyJoins()) {
    over_quota_ = true;
    return Room::kMade;
  }
  while (!g3_shares_.FitsQuota(tenant, Planted(Canary::kQuotaForgotten) ? 0 : blocks)) {
    if (Spent()) return Room::kLater;
    Evicted evicted = EvictOneFromG3(tier, tenant);
    for (size_t d = 0; evicted == Evicted::kNone && d < devices_.size(); ++d) {
      evicted = EvictOneFromG3(*devices_[d], tenant);
    }
    for (size_t d = 0; evicted == Evicted::kNone && d < devices_.size(); ++d) {
      evicted = EvictReplaced(*devices_[d], tenant);
    }
    if (evicted == Evicted::kNone) return Room::kNone;
    if (evicted == Evicted::kOne) ++tenant_counters_[tenant.value()].g3_quota_evictions;
  }
  return Room::kMade;
}

Evicted Core::EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks) {
  Count(static_cast<uint32_t>(work::kLook * tenant_counters_.size()));
  if (Planted(Canary::kTakesFromAnybody) && tier.CanGive(TenantId(0))) {
    if (tenant.value() > 0) ++tenant_counters_[0].g3_pushed_out;
    return EvictOneFromG3(tier, TenantId(0));
  }
  // Whoever turns out to have nothing that can go is not asked again.
  const auto can_give = [&tier](TenantId t) { return tier.CanGive(t); };
  while (const std::optional<TenantId> from = g3_shares_.ChooseDonor(tenant, blocks, can_give)) {
    const Evicted evicted = EvictOneFromG3(tier, *from);
    if (evicted == Evicted::kNone) continue;
    if (evicted == Evicted::kOne && *from != tenant) {
      ++tenant_counters_[from->value()].g3_pushed_out;
    }
    return evicted;
  }
  return Evicted::kNone;
}

bool Core::EnsureReserve(DeviceTier& tier, const Chunk& chunk) {
  const uint64_t blocks = chunk.blocks();
  if (blocks > tier.capacity_blocks) return true;  // is about to be refused
  const uint64_t wanted = blocks + tier.reserve_blocks;
  while (tier.free_blocks() < wanted) {
    if (EvictOneFor(tier, chunk.tenant, blocks) == Evicted::kNone) return true;
    if (Spent()) return false;
  }
  return true;
}

bool Core::AllocateG3(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) {
  const uint64_t blocks = chunk.blocks();
  KVKEEP_CHECK(chunk.device == tier.number && chunk.g3.empty());
  if (blocks > tier.capacity_blocks) return false;
  std::optional<BlockNumber> near;
  if (parent != kNoSlot && !table_.at(parent).g3.empty() &&
      table_.at(parent).device == chunk.device) {
    near = BlockNumber(table_.at(parent).g3.end_block());
  }
  std::optional<ExtentList> extents;
  if (tier.used_blocks() + blocks <= tier.capacity_blocks) {
    extents = tier.allocator->Allocate(BlockCount(blocks), near);
  }
  if (!extents.has_value()) {
    // Too scattered even for many extents, or what gives way is not gone yet: make more room, for
    // the next attempt.
    const bool comes = tier.commits.freeing_blocks() >= blocks;
    if (!comes && EvictOneFor(tier, chunk.tenant, blocks) == Evicted::kNone) {
      EvictReplaced(tier, std::nullopt);
    }
    return false;
  }
  chunk.g3 = *std::move(extents);
  g3_shares_.Take(chunk.tenant, blocks);
  return true;
}

void Core::RemoveFromG3(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.g3_reading);
  DeviceTier& tier = *devices_[chunk.device];
  if (chunk.in_g3_policy) tier.policy(chunk.tenant).OnErase(slot, reason);
  chunks_.NoteGone(chunk, LifeSamples::kG3, reason);
  chunk.in_g3_policy = false;
  if (Planted(Canary::kReuseBeforeRemoval)) {
    tier.allocator->Free(chunk.g3);
    chunk.g3.clear();
  }
  if (!KeepReplaced(chunk, slot)) {
    g3_shares_.Give(chunk.tenant, chunk.blocks());
    const bool evicted = reason == EvictionPolicy::EraseReason::kEvicted;
    tier.commits.Remove({chunk.id, std::move(chunk.g3), OverwrittenRecord(chunk, slot), evicted,
                         chunk.g3_sequence, chunk.doubtful});
  }
  chunk.g3.clear();
  chunk.unconfirmed = chunk.doubtful = false;  // that was about the record
  SetG3State(chunk, G3State::kAbsent);
  KVKEEP_CHECK(tier.chunks > 0);
  --tier.chunks;
  // Many may go in one hold: one batch for them.
  if (!tier.commits.under_way()) PumpLater(tier);
}

void Core::ShareG3() {
  uint64_t capacity = 0;
  for (const auto& tier : devices_) {
    if (tier->presence == DeviceTier::Presence::kAway) continue;
    // Of one that joins, as much as it has brought: else nobody would be above its share meanwhile.
    const bool joins = tier->presence == DeviceTier::Presence::kJoining;
    const uint64_t space = joins ? std::min(tier->capacity_blocks, tier->joining_blocks)
                                 : tier->capacity_blocks;
    const uint64_t labels = TotalBlocks(tier->device->ReservedExtents()).value();
    capacity += space - std::min(space, labels + tier->reserve_blocks);
  }
  g3_shares_.SetCapacity(capacity);
}

bool Core::EvictOverQuota(DeviceTier& tier, TenantId tenant) {
  if (g3_shares_.FitsQuota(tenant, 0)) return false;
  Evicted evicted = EvictOneFromG3(tier, tenant);
  if (evicted == Evicted::kNone) evicted = EvictReplaced(tier, tenant);
  tenant_counters_[tenant.value()].g3_quota_evictions += evicted == Evicted::kOne;
  return evicted != Evicted::kNone;
}

bool Core::EvictOverCapacity(DeviceTier& tier) {
  if (!tier.over_capacity()) return false;
  const auto can_give = [&tier](TenantId tenant) { return tier.CanGive(tenant); };
  Evicted evicted = Evicted::kNone;
  while (evicted == Evicted::kNone) {
    Count(static_cast<uint32_t>(work::kLook * tenant_counters_.size()));
    std::optional<TenantId> from = g3_shares_.ChooseDonor(g3_shares_.nobody(), 0, can_give);
    // Nobody here is above its share of all devices: then any.
    for (TenantId tenant(0); !from.has_value() && tenant != g3_shares_.nobody(); ++tenant) {
      if (can_give(tenant)) from = tenant;
    }
    if (!from.has_value()) return EvictReplaced(tier, std::nullopt) == Evicted::kOne;
    evicted = EvictOneFromG3(tier, *from);
  }
  return true;
}

}  // namespace kvkeep::store_internal
