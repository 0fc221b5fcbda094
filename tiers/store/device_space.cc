#include "tiers/store/device_space.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/scaled.h"

namespace kvkeep::store_internal {
namespace {

// A device counts as slow if its queue is longer than another's by more than this many chunks.
constexpr size_t kLongerQueue = 64;
constexpr uint64_t kBlocksOfQueued = 256;  // a guess at the blocks of a chunk that waits
// A device that was away or slow catches up with at most this part of its capacity.
constexpr double kMostBehind = 0.25;
// A parent's device still gets the child if it is fuller than the best device, or was given more,
// by at most this part of its capacity.
constexpr double kSlack = 1.0 / 16;

// How well a device suits a new chunk. While there is free space, all devices fill up at the same
// rate, by their capacity. After that all are overwritten at the same rate, so that a chunk lives
// as long on a small device as on a large one. A slow device gets as much as it can write.
struct Suits {
  bool room = false;      // there is space, or a tenant would give some
  bool keeps_up = false;  // the queue is not much longer than other devices'
  double free_share = 0;  // the part of its capacity that is free for new chunks
  double given = 0;       // the blocks that were ever queued for it, by its capacity

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
  // Space that is too small for the chunk does not count. Else an eviction's remainder would draw
  // every chunk to this device.
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

DeviceSpace::DeviceSpace(const StoreOptions& options, Chunks* chunks, DeviceTiers* tiers,
                         Records* records)
    : chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      most_reserve_blocks_(options.max_device_writes_in_flight_bytes / kBlockBytes),
      capacities_(options.g3_capacity_bytes) {}

// ---- which device, and what gives way there

bool DeviceSpace::HasRoom(DeviceTier& tier, const Chunk& chunk) {
  if (tier.free_blocks() >= chunk.blocks()) return true;
  return tiers_.shares
      .ChooseDonor(chunk.tenant, chunk.blocks(), [&tier](TenantId t) { return tier.CanGive(t); })
      .has_value();
}

// Returns the device that suits best. A child goes to its parent's device if that suits nearly as
// well, so that reading a prefix is one long read. Without this condition the chunks that all
// prompts begin with would draw all other chunks to one device. Null: no device takes writes.
DeviceTier* DeviceSpace::ChooseDevice(const Chunk& chunk, ChunkSlot parent) {
  size_t shortest_queue = SIZE_MAX;
  for (const auto& tier : tiers_.all()) {
    if (tier->TakesWrites()) shortest_queue = std::min(shortest_queue, tier->writes.waiting());
  }
  ForgiveWhoIsBehind(tiers_.all());
  DeviceTier *parents = nullptr, *best = nullptr;
  if (parent != kNoSlot && chunks_.table.at(parent).g3_state != G3State::kAbsent) {
    parents = &tiers_.of(chunks_.table.at(parent));
  }
  Suits parents_suits, best_suits;
  for (const auto& tier : tiers_.all()) {
    if (!tier->TakesWrites()) {
      if (tier->writable()) tier->syncs.NoteDirty();  // the next sync looks at its index again
      continue;
    }
    const Suits suits = HowItSuits(*tier, chunk.blocks(), HasRoom(*tier, chunk), shortest_queue);
    if (parents == tier.get()) parents_suits = suits;
    if (best != nullptr && !(suits > best_suits)) continue;
    best = tier.get();
    best_suits = suits;
  }
  const bool stays = best != nullptr && parents != nullptr && parents_suits.IsNearly(best_suits);
  return stays ? parents : best;
}

Evicted DeviceSpace::EvictOne(DeviceTier& tier, TenantId from) {
  EvictionPolicy& policy = tier.policy(from);
  while (const std::optional<ChunkSlot> victim = policy.Victim()) {
    if (chunks_.table.at(*victim).g3_reading) {
      policy.Park(*victim);
      chunks_.Count(work::kPark);
      if (chunks_.Spent()) return Evicted::kSpent;
      continue;
    }
    KVKEEP_CHECK(chunks_.table.at(*victim).tenant == from);
    Evict(tier, *victim);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

void DeviceSpace::Evict(DeviceTier& tier, ChunkSlot slot) {
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(chunk->device == tier.number);
  ++chunks_.counters.g3_evictions;
  ++chunks_.tenant_counters[chunk->tenant.value()].g3_evictions;
  records_.Remove(*chunk, slot, EvictionPolicy::EraseReason::kEvicted);
  chunks_.Count(work::kEvict);
}

// ---- room in one piece

std::optional<TenantId> DeviceSpace::WindowDonor(DeviceTier& tier, TenantId taker,
                                                 uint64_t blocks) {
  chunks_.Count(static_cast<uint32_t>(work::kLook * chunks_.tenant_counters.size()));
  const Shares& shares = tiers_.shares;
  // A tenant at its quota makes room with its own chunks.
  if (!shares.FitsQuota(taker, blocks) && !tiers_.AnyJoins()) return taker;
  const auto can_give = [&tier](TenantId t) { return tier.CanGive(t); };
  const std::optional<TenantId> from = shares.ChooseDonor(taker, blocks, can_give);
  if (!from.has_value() || *from == taker || *from == shares.nobody()) return from;
  // A tenant gives only what it has above its share.
  const bool enough = shares.held(*from) >= shares.share(*from) + blocks;
  return enough ? from : std::nullopt;
}

WindowSearch::Yield DeviceSpace::LookAt(const DeviceTier& tier, TenantId from, uint64_t granule) {
  chunks_.Count(work::kFind);
  const EvictionPolicy& policy = tier.policy(from);
  const auto judge = [&](ChunkSlot slot) STORE_LOCKED {
    chunks_.Count(work::kFind);
    const Chunk& chunk = chunks_.table.at(slot);
    std::optional<WindowSearch::Candidate> candidate;
    if (chunk.tenant == from && !chunk.g3_reading) {
      candidate = {chunk.g3.first().count.value(), policy.Newest(), policy.Recency(slot)};
    }
    return candidate;
  };
  const uint64_t free = tier.allocator->FreeIn(tier.places->ExtentOf(granule));
  return WindowSearch::LookAt(*tier.places, granule, free, judge);
}

// Returns false if no search can begin: in this hold, as it is spent, or for this image at all.
bool DeviceSpace::BeginSearch(DeviceTier& tier, const Chunk& chunk) {
  DeviceTier::Emptying& emptying = *tier.emptying;
  if (emptying.windows >= WindowSearch::kMostWindows || chunks_.Spent()) return false;
  const std::optional<TenantId> from = WindowDonor(tier, chunk.tenant, chunk.blocks());
  const auto place_of = [&](ChunkSlot slot) STORE_LOCKED {
    const Chunk& there = chunks_.table.at(slot);
    return there.g3_reading ? std::nullopt : std::optional(there.g3.first_block());
  };
  std::vector<uint64_t> seeds;
  if (from.has_value()) {
    seeds = WindowSearch::Seeds(tier.policy(*from), *tier.places, chunks_.hold, place_of);
  }
  if (seeds.empty()) {
    // In another hold only if that one finds a victim: else it would be asked for without end.
    const bool again = from.has_value() && tier.policy(*from).HasVictim() && chunks_.Spent();
    if (!again) emptying.windows = WindowSearch::kMostWindows;
    return false;
  }
  ++emptying.windows;
  emptying.from = *from;
  emptying.newest = tier.policy(*from).Newest();
  emptying.search.emplace(tier.places->granules(), chunk.blocks(), std::move(seeds));
  emptying.searched = false;
  return true;
}

DeviceSpace::Room DeviceSpace::EmptyWindow(DeviceTier& tier, const Chunk& chunk) {
  const uint64_t blocks = chunk.blocks();
  std::optional<DeviceTier::Emptying>& emptying = tier.emptying;
  if (emptying.has_value() && emptying->image != chunk.g3_generation) emptying.reset();
  const bool large = emptying.has_value() ||
                     chunks_.IsLarge(blocks, tier.chunks, tier.used_blocks());
  if (!large) return Room::kMade;
  const bool refused =
      blocks > tier.capacity_blocks || !tiers_.shares.CanEverHold(chunk.tenant, blocks);
  if (refused || tier.allocator->Fits(BlockCount(blocks))) {
    emptying.reset();
    return Room::kMade;
  }
  if (!emptying.has_value()) emptying = {.image = chunk.g3_generation};
  const auto look = [&](uint64_t granule) STORE_LOCKED {
    return LookAt(tier, emptying->from, granule);
  };
  while (true) {
    if (!emptying->search.has_value() && !BeginSearch(tier, chunk)) {
      return emptying->windows < WindowSearch::kMostWindows ? Room::kLater : Room::kNone;
    }
    while (!emptying->searched) {
      if (chunks_.Spent()) return Room::kLater;
      if (emptying->search->Step(look)) continue;
      emptying->searched = true;
      emptying->asked = 0;
      if (emptying->search->best().has_value()) emptying->next = emptying->search->best()->begin;
    }
    if (!emptying->search->best().has_value()) {
      emptying->search.reset();
      emptying->windows = WindowSearch::kMostWindows;
      return Room::kNone;
    }
    if (emptying->next < emptying->search->best()->end) {
      if (!EmptyGranules(tier, chunk.tenant)) return Room::kLater;
      emptying->asked = tier.commits.asked();
      ++chunks_.counters.g3_windows_emptied;
    }
    if (!tier.commits.HasRemoved(emptying->asked)) return Room::kLater;
    // The window is empty, and that is not enough: some chunks stayed, or others took the space.
    emptying->search.reset();
  }
}

bool DeviceSpace::EmptyGranules(DeviceTier& tier, TenantId taker) {
  DeviceTier::Emptying& emptying = *tier.emptying;
  const EvictionPolicy& policy = tier.policy(emptying.from);
  const Shares& shares = tiers_.shares;
  const bool own = emptying.from == taker;
  for (; emptying.next < emptying.search->best()->end; ++emptying.next) {
    if (chunks_.Spent()) return false;
    chunks_.Count(work::kLook);
    for (ChunkSlot slot = tier.places->First(emptying.next); slot != kNoSlot;) {
      const ChunkSlot next = tier.places->Next(slot);
      chunks_.Count(work::kLook);
      const Chunk& chunk = chunks_.table.at(slot);
      const bool gives = own || emptying.from == shares.nobody() ||
                         shares.held(emptying.from) > shares.share(emptying.from);
      // A chunk that was touched since the search began stays.
      const bool goes = gives && chunk.tenant == emptying.from && !chunk.g3_reading &&
                        policy.Recency(slot) <= emptying.newest;
      if (goes) {
        chunks_.tenant_counters[emptying.from.value()].g3_pushed_out += !own;
        Evict(tier, slot);
        // The next hold begins the granule anew, as its list may have changed. This happens only
        // after an eviction, so it ends.
        if (chunks_.Spent()) return false;
      }
      slot = next;
    }
  }
  return true;
}

DeviceSpace::Room DeviceSpace::MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks) {
  if (!tiers_.shares.CanEverHold(tenant, blocks)) return Room::kNone;
  // A device that joins may bring more. Once it is here, the tenant's oldest chunks are evicted.
  if (tiers_.AnyJoins()) {
    tiers_.over_quota = true;
    return Room::kMade;
  }
  while (!tiers_.shares.FitsQuota(tenant, Planted(Canary::kQuotaForgotten) ? 0 : blocks)) {
    if (chunks_.Spent()) return Room::kLater;
    Evicted evicted = EvictOne(tier, tenant);
    for (size_t d = 0; evicted == Evicted::kNone && d < tiers_.size(); ++d) {
      evicted = EvictOne(tiers_.at(d), tenant);
    }
    for (size_t d = 0; evicted == Evicted::kNone && d < tiers_.size(); ++d) {
      evicted = records_.EvictKept(tiers_.at(d), tenant);
    }
    if (evicted == Evicted::kNone) return Room::kNone;
    if (evicted == Evicted::kOne) ++chunks_.tenant_counters[tenant.value()].g3_quota_evictions;
  }
  return Room::kMade;
}

Evicted DeviceSpace::EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks) {
  chunks_.Count(static_cast<uint32_t>(work::kLook * chunks_.tenant_counters.size()));
  if (Planted(Canary::kTakesFromAnybody) && tier.CanGive(TenantId(0))) {
    if (tenant.value() > 0) ++chunks_.tenant_counters[0].g3_pushed_out;
    return EvictOne(tier, TenantId(0));
  }
  // EvictOne parks chunks that cannot go, so a tenant with no others is not asked again.
  const auto can_give = [&tier](TenantId t) { return tier.CanGive(t); };
  while (const std::optional<TenantId> from = tiers_.shares.ChooseDonor(tenant, blocks, can_give)) {
    const Evicted evicted = EvictOne(tier, *from);
    if (evicted == Evicted::kNone) continue;
    if (evicted == Evicted::kOne && *from != tenant) {
      ++chunks_.tenant_counters[from->value()].g3_pushed_out;
    }
    return evicted;
  }
  return Evicted::kNone;
}

bool DeviceSpace::EnsureReserve(DeviceTier& tier, const Chunk& chunk) {
  const uint64_t blocks = chunk.blocks();
  if (blocks > tier.capacity_blocks) return true;  // Allocate refuses it
  const uint64_t wanted = blocks + tier.reserve_blocks;
  while (tier.free_blocks() < wanted) {
    if (EvictOneFor(tier, chunk.tenant, blocks) == Evicted::kNone) return true;
    if (chunks_.Spent()) return false;
  }
  return true;
}

bool DeviceSpace::Allocate(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) {
  const uint64_t blocks = chunk.blocks();
  KVKEEP_CHECK(chunk.device == tier.number && chunk.g3.empty());
  if (blocks > tier.capacity_blocks) return false;
  std::optional<BlockNumber> near;
  if (parent != kNoSlot && !chunks_.table.at(parent).g3.empty() &&
      chunks_.table.at(parent).device == chunk.device) {
    near = BlockNumber(chunks_.table.at(parent).g3.end_block());
  }
  std::optional<ExtentList> extents;
  if (tier.used_blocks() + blocks <= tier.capacity_blocks) {
    extents = tier.allocator->Allocate(BlockCount(blocks), near);
    tier.NoteTaken();
  }
  if (!extents.has_value()) {
    // The free space is too scattered even for many extents, or the evicted chunks are not removed
    // yet. Makes more room, for the next attempt.
    const bool comes = tier.commits.freeing_blocks() >= blocks;
    if (!comes && EvictOneFor(tier, chunk.tenant, blocks) == Evicted::kNone) {
      records_.EvictKept(tier, std::nullopt);
    }
    return false;
  }
  chunk.g3 = *std::move(extents);
  tiers_.shares.Take(chunk.tenant, blocks);
  KVKEEP_CHECK(tier.used_blocks() <= tier.capacity_blocks);
  return true;
}

// ---- limits

void DeviceSpace::SetCapacities(std::vector<uint64_t> bytes) {
  KVKEEP_CHECK(bytes.size() == tiers_.size());
  capacities_ = std::move(bytes);
  for (const auto& tier : tiers_.all()) Limit(*tier);
}

void DeviceSpace::Limit(DeviceTier& tier) {
  if (tier.presence == DeviceTier::Presence::kAway) return;
  const uint64_t all = tier.device->capacity_blocks().value();
  const uint64_t built = tier.device->capacity_bytes();
  const uint64_t before = tier.capacity_blocks;
  tier.capacity_bytes = std::min(capacities_[tier.number], built);
  tier.capacity_blocks = Scaled(all, tier.capacity_bytes, built);
  if (before > 0) {
    tier.writes.SetGiven(Scaled(tier.writes.given_blocks(), tier.capacity_blocks, before));
  }
  tier.reserve_blocks = std::min(most_reserve_blocks_, tier.capacity_blocks / 4);
}

void DeviceSpace::Share() {
  uint64_t capacity = 0;
  for (const auto& tier : tiers_.all()) {
    if (tier->presence == DeviceTier::Presence::kAway) continue;
    // A device that joins counts with the blocks that it has brought. Otherwise no tenant would be
    // above its share meanwhile.
    const bool joins = tier->presence == DeviceTier::Presence::kJoining;
    const uint64_t space =
        joins ? std::min(tier->capacity_blocks, tier->joining_blocks) : tier->capacity_blocks;
    const uint64_t labels = TotalBlocks(tier->device->ReservedExtents()).value();
    capacity += space - std::min(space, labels + tier->reserve_blocks);
  }
  tiers_.shares.SetCapacity(capacity);
}

bool DeviceSpace::EvictOverQuota(DeviceTier& tier, TenantId tenant) {
  if (tiers_.shares.FitsQuota(tenant, 0)) return false;
  Evicted evicted = EvictOne(tier, tenant);
  if (evicted == Evicted::kNone) evicted = records_.EvictKept(tier, tenant);
  chunks_.tenant_counters[tenant.value()].g3_quota_evictions += evicted == Evicted::kOne;
  return evicted != Evicted::kNone;
}

bool DeviceSpace::EvictOverCapacity(DeviceTier& tier) {
  if (!tier.over_capacity()) return false;
  const auto can_give = [&tier](TenantId tenant) { return tier.CanGive(tenant); };
  Evicted evicted = Evicted::kNone;
  while (evicted == Evicted::kNone) {
    chunks_.Count(static_cast<uint32_t>(work::kLook * chunks_.tenant_counters.size()));
    std::optional<TenantId> from = tiers_.shares.ChooseDonor(tiers_.shares.nobody(), 0, can_give);
    // If no tenant on this device is above its share of all devices, any tenant gives.
    for (TenantId tenant(0); !from.has_value() && tenant != tiers_.shares.nobody(); ++tenant) {
      if (can_give(tenant)) from = tenant;
    }
    if (!from.has_value()) return records_.EvictKept(tier, std::nullopt) == Evicted::kOne;
    evicted = EvictOne(tier, *from);
  }
  return true;
}

}  // namespace kvkeep::store_internal
