#include "tiers/store/chunks.h"

#include <algorithm>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/store/arena_image.h"
#include "tiers/store/change.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

// An image comes whole by a put, piece by piece by a promotion, or was left by an earlier process
// and is verified. An image that is being read or verified stays until that has ended. A failed
// image never becomes readable.
constexpr bool MayBecome(G2State from, G2State to) {
  using enum G2State;
  switch (from) {
    case kAbsent:
      return to == kReading || to == kUnverified || to == kResident;
    case kReading:
      return to == kResident || to == kFailed || to == kAway;
    case kUnverified:
      return to == kVerifying || to == kAbsent;
    case kVerifying:
      return to == kResident || to == kFailed;
    case kResident:
    case kFailed:
    case kAway:
      return to == kAbsent;
  }
  return false;
}

bool IsGone(const Chunk& chunk) {
  return !chunk.has_g2_space() && chunk.g3_state == G3State::kAbsent;
}

}  // namespace

Chunks::Chunks(const StoreOptions& options, const StoreDeps& deps, Incarnation incarnation,
               std::vector<Shares::Claim> claims, const Owners* owners, ChunkHooks* hooks)
    : hold(deps.hold_work == 0 ? work::kHold : deps.hold_work),
      slots(std::make_shared<SlotArrays>(static_cast<uint32_t>(options.max_chunks), &toucher)),
      table(slots, deps.random->NextU64()),
      slot_shares(std::move(claims)),
      marks(deps.arena->live_marks()),
      life(options.life_sample_one_in),
      tenant_counters(options.tenants.size() + 1),
      deps_(deps),
      incarnation_(incarnation),
      large_chunks_(deps.large_chunks == 0 ? WindowSearch::kLargeChunks : deps.large_chunks),
      owners_(*owners),
      hooks_(*hooks) {
  const uint64_t per_segment = deps_.arena->segment_blocks().value();
  const uint64_t all = deps_.arena->capacity_blocks().value();
  const std::vector<Extent> to_come = deps_.arena->ToCome();
  slot_shares.SetCapacity(options.max_chunks);
  uint64_t first = 0;
  // A chunk is in one pool at most.
  PlaceIndex::Node* const nodes = slots->Add<PlaceIndex::Node>();
  for (const TenantOptions& tenant : options.tenants) {
    const uint64_t end = std::min(first + tenant.g2_segments * per_segment, all);
    KVKEEP_CHECK(end > first);  // Store::Create has looked
    pools.push_back(std::make_unique<G2Pool>(
        tenant.name, BlockNumber(first), BlockCount(end - first), BlockCount(per_segment),
        G2Pool::Limits{},
        MakeEvictionPolicy(
            options.g2_policy,
            {.max_chunks = slots->max_slots(),
             .slots = slots,
             .shares_memory_with = pools.empty() ? nullptr : pools.front()->policy.get(),
             .learns_apart = true}),
        nodes));
    for (const Extent& extent : to_come) {
      if (pools.back()->Owns(extent.first)) pools.back()->AwaitMemory(extent);
    }
    parts_.push_back(static_cast<double>(end - first) / static_cast<double>(all));
    first = end;
  }
}

Chunks::~Chunks() {
  KVKEEP_CHECK(!hold.has_tasks());
}

void Chunks::PumpLater(Pump& pump) {
  if (!pump.Ask()) return;
  Later([this, &pump] { KeepPumping(pump); });
}

void Chunks::KeepPumping(Pump& pump) {
  Section section(this);
  while (pump.RunOnce()) {
    if (pump.asked()) section.Yield();
  }
}

Change::Change(Chunks* chunks, ChunkSlot slot)
    : chunks_(*chunks),
      slot_(slot),
      chunk_(chunks->table.at(slot)),
      was_evictable_(chunk_.evictable_from_g2()) {
  KVKEEP_CHECK(chunk_.live);
}

Change::~Change() {
  chunks_.AssertHeld();
  chunks_.Settle(slot_, was_evictable_);
}

// Defined here, since the simulator plants a bug in it.
bool Chunk::evictable_from_g2() const {
  return in_g2_policy && in_g2() && !being_read() &&
         (pins == 0 || Planted(Canary::kReuseUnderLease)) && !dirty() && !sending;
}

void Chunks::Settle(ChunkSlot slot, bool was_evictable) {
  Chunk& chunk = table.at(slot);
  if (chunk.detached) {
    if (chunk.has_g2_space() && !chunk.in_use()) {
      FreeCopy(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
    if (chunk.g3_state == G3State::kStored && !chunk.g3_reading) hooks_.LeaveG3(chunk, slot);
  }
  const bool evictable = chunk.evictable_from_g2();
  if (evictable && !was_evictable) {
    pool(chunk).evictable_blocks.Take(chunk.blocks());
    pool(chunk).policy->Unpark(slot);
  } else if (!evictable && was_evictable) {
    pool(chunk).evictable_blocks.Give(chunk.blocks());
  }
  if (IsGone(chunk) && !chunk.detached) hooks_.OnHomeless(slot);
  hooks_.OnChanged(chunk);
  NoteUnbacked(chunk);
  if (!IsGone(chunk)) return;
  KVKEEP_CHECK(chunk.pins == 0 && !chunk.in_g2_policy && !chunk.in_g3_policy);
  KVKEEP_CHECK(!chunk.sending && !chunk.g3_reading && !chunk.waits_unbacked);
  KVKEEP_CHECK(chunk.g2.empty() && chunk.g3.empty());
  hooks_.OnGone(chunk, slot);
  slot_shares.Give(chunk.tenant, 1);
  table.Destroy(slot);
}

ChunkSlot Chunks::Create(const ChunkId& id, const ImageShape& shape) {
  const ChunkSlot slot = table.Create(id, shape);
  if (slot == kNoSlot) return slot;
  table.at(slot).tenant = owners_.OwnerOf(id.ns);
  slot_shares.Take(table.at(slot).tenant, 1);
  return slot;
}

void Chunks::Detach(ChunkSlot slot) {
  Change chunk(this, slot);
  Count(work::kEvict);
  KVKEEP_CHECK(chunk->has_g2_space() || chunk->g3_state == G3State::kStored);
  table.Detach(slot);
  EndUnbackedWait(slot);
  // Readers may keep the bytes for long. A restart must not bring them back.
  if (chunk->has_g2_space()) marks.Clear(chunk->g2.first_block());
  EraseFromPolicy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  hooks_.OnDetached(*chunk, slot);
}

void Chunks::Pin(ChunkSlot slot) {
  if (table.at(slot).g2_state == G2State::kUnverified) hooks_.Verify(slot);
  Count(work::kPin);
  Change chunk(this, slot);
  KVKEEP_CHECK(chunk->has_g2_space() && !chunk->failed());
  KVKEEP_CHECK(!chunk->detached || chunk->pins > 0);  // a lease may hold one that was deleted
  if (chunk->pins++ == 0) pool(*chunk).pinned_blocks.Take(chunk->blocks());
}

void Chunks::Unpin(ChunkSlot slot) {
  Count(work::kPin);
  Change chunk(this, slot);
  KVKEEP_CHECK(chunk->pins > 0);
  if (--chunk->pins == 0) pool(*chunk).pinned_blocks.Give(chunk->blocks());
}

void Chunks::NoteGone(const Chunk& chunk, LifeSamples::Where where,
                      EvictionPolicy::EraseReason reason) {
  const Fingerprint fingerprint = table.fingerprint(chunk.id);
  if (!life.Sampled(fingerprint)) return;
  if (reason == EvictionPolicy::EraseReason::kEvicted) {
    life.OnEvicted(fingerprint, where, deps_.clock->Now());
  } else {
    life.OnRemoved(fingerprint, where);
  }
}

std::optional<ExtentList> Chunks::Allocate(Section& section, TenantId tenant, uint64_t blocks,
                                           ChunkSlot parent) {
  G2Pool& from = pool(tenant);
  Count(work::kAllocate);
  // The part of the pool's gathered_blocks that this call has freed and keeps for itself.
  uint64_t mine = 0;
  const auto mine_now = [&](uint64_t blocks_now) {
    from.gathered_blocks.Give(mine);
    from.gathered_blocks.Take(blocks_now);
    mine = blocks_now;
  };
  const auto keep = [&]() STORE_LOCKED { mine_now(std::min(from.free_blocks(mine), blocks)); };
  int windows = 0;
  while (true) {
    // Evict nothing for a request that cannot be met.
    if (from.free_blocks(mine, from.evictable_blocks) < blocks) break;
    if (from.free_blocks(mine) >= blocks) {
      // The parent's place is looked up each time: the parent may have been evicted, or its slot
      // may be another chunk's. Then the place is as good as any.
      std::optional<BlockNumber> near;
      if (parent != kNoSlot && table.at(parent).has_g2_space()) {
        near = BlockNumber(table.at(parent).g2.end_block());
      }
      std::optional<ExtentList> extents = from.Allocate(BlockCount(blocks), near);
      if (extents.has_value()) {
        mine_now(0);
        return extents;
      }
    }
    const bool scattered = windows < WindowSearch::kMostWindows &&
                           IsLarge(blocks, from.policy->size(), from.used_blocks()) &&
                           !from.Fits(blocks);
    if (scattered) {
      ++windows;
      if (EmptyWindow(section, from, blocks, keep)) continue;
      windows = WindowSearch::kMostWindows;
    }
    if (!Spent() && EvictOne(from) == Evicted::kNone) break;
    if (Spent()) {
      keep();
      section.Yield();
    }
  }
  mine_now(0);
  return std::nullopt;
}

Evicted Chunks::EvictOne(G2Pool& from) {
  while (const std::optional<ChunkSlot> victim = from.policy->Victim()) {
    if (!table.at(*victim).evictable_from_g2()) {
      from.policy->Park(*victim);
      Count(work::kPark);
      if (Spent()) return Evicted::kSpent;
      continue;
    }
    Evict(from, *victim);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

void Chunks::Evict(G2Pool& from, ChunkSlot slot) {
  Change chunk(this, slot);
  KVKEEP_CHECK(&pool(*chunk) == &from);
  ++counters.g2_evictions;
  ++tenant_counters[chunk->tenant.value()].g2_evictions;
  if (chunk->g3_state == G3State::kAbsent) ++counters.unbacked_evictions;
  FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kEvicted);
  Count(work::kEvict);
}

WindowSearch::Yield Chunks::LookAt(const G2Pool& from, uint64_t granule) {
  Count(work::kFind);
  const auto judge = [&](ChunkSlot slot) STORE_LOCKED {
    Count(work::kFind);
    const Chunk& chunk = table.at(slot);
    std::optional<WindowSearch::Candidate> candidate;
    if (chunk.evictable_from_g2()) {
      candidate = {chunk.g2.first().count.value(), from.policy->Newest(),
                   from.policy->Recency(slot)};
    }
    return candidate;
  };
  const uint64_t free = from.FreeIn(from.places.ExtentOf(granule));
  return WindowSearch::LookAt(from.places, granule, free, judge);
}

bool Chunks::EmptyWindow(Section& section, G2Pool& from, uint64_t blocks,
                         BeforeYield before_yield) {
  const auto yield_if_spent = [&]() STORE_LOCKED {
    if (!Spent()) return false;
    before_yield();
    section.Yield();
    return true;
  };
  const auto place_of = [&](ChunkSlot slot) STORE_LOCKED {
    const Chunk& chunk = table.at(slot);
    return chunk.evictable_from_g2() ? std::optional(chunk.g2.first_block()) : std::nullopt;
  };
  std::vector<uint64_t> seeds;
  do {
    yield_if_spent();
    seeds = WindowSearch::Seeds(*from.policy, from.places, hold, place_of);
  } while (seeds.empty() && Spent());
  const int64_t newest = from.policy->Newest();  // chunks that are touched from here on stay
  WindowSearch search(from.places.granules(), blocks, std::move(seeds));
  const auto look = [&](uint64_t granule) STORE_LOCKED { return LookAt(from, granule); };
  while (search.Step(look)) yield_if_spent();
  if (!search.best().has_value()) return false;
  for (uint64_t granule = search.best()->begin; granule < search.best()->end; ++granule) {
    Count(work::kLook);
    for (ChunkSlot slot = from.places.First(granule); slot != kNoSlot;) {
      const ChunkSlot next = from.places.Next(slot);
      Count(work::kLook);
      const bool goes =
          table.at(slot).evictable_from_g2() && from.policy->Recency(slot) <= newest;
      if (goes) Evict(from, slot);
      // Begins anew after a yield, as the list may have changed. Yields only after an eviction, so
      // the loop ends.
      slot = goes && yield_if_spent() ? from.places.First(granule) : next;
    }
  }
  ++counters.g2_windows_emptied;
  return true;
}

void Chunks::InsertIntoPolicy(ChunkSlot slot, ChunkSlot parent) {
  Chunk& chunk = table.at(slot);
  KVKEEP_CHECK(!chunk.in_g2_policy && chunk.has_g2_space() && !chunk.detached);
  const bool parent_here = parent != kNoSlot && table.at(parent).in_g2_policy;
  const Fingerprint fingerprint = table.fingerprint(chunk.id);
  const MonotonicTime now = deps_.clock->Now();
  pool(chunk).policy->OnInsert({.slot = slot,
                                .fingerprint = fingerprint,
                                .parent = parent_here ? parent : kNoSlot,
                                .blocks = static_cast<uint32_t>(chunk.blocks()),
                                .transient = chunk.transient},
                               now);
  life.OnStored(fingerprint, LifeSamples::kG2, now);
  pool(chunk).places.Add(slot, chunk.g2.first_block());
  chunk.in_g2_policy = true;
}

void Chunks::EraseFromPolicy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  if (!chunk.in_g2_policy) return;
  pool(chunk).policy->OnErase(slot, reason);
  pool(chunk).places.Remove(slot, chunk.g2.first_block());
  chunk.in_g2_policy = false;
}

void Chunks::SetG2State(Chunk& chunk, G2State to) {
  KVKEEP_CHECK(MayBecome(chunk.g2_state, to));
  const bool had_image = chunk.in_g2();
  chunk.g2_state = to;
  if (had_image == chunk.in_g2()) return;
  Account& chunks = pool(chunk).chunks;
  had_image ? chunks.Give(1) : chunks.Take(1);
}

void Chunks::GiveCopy(Chunk& chunk, TenantId tenant, ExtentList extents, G2State state) {
  KVKEEP_CHECK(chunk.tenant == tenant);  // the space goes back to the pool that it came from
  chunk.g2 = std::move(extents);
  SetG2State(chunk, state);
}

void Chunks::FreeCopy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  KVKEEP_CHECK(chunk.has_g2_space() && !chunk.dirty() && !chunk.sending);
  EndUnbackedWait(slot);
  KVKEEP_CHECK(chunk.pins == 0 || Planted(Canary::kReuseUnderLease));
  EraseFromPolicy(chunk, slot, reason);
  NoteGone(chunk, LifeSamples::kG2, reason);
  marks.Clear(chunk.g2.first_block());  // before anybody else gets the blocks
  pool(chunk).Free(chunk.g2);
  chunk.g2.clear();
  SetG2State(chunk, G2State::kAbsent);
}

ChunkSlot Chunks::EndUnbackedWait(ChunkSlot slot) {
  const Chunk& chunk = table.at(slot);
  return chunk.waits_unbacked ? pool(chunk).unbacked.Remove(table, slot) : kNoSlot;
}

void Chunks::NoteUnbacked(Chunk& chunk) {
  const bool unbacked = !deps_.devices.empty() && !chunk.detached && chunk.in_g2() &&
                        chunk.g3_state == G3State::kAbsent;
  if (unbacked == chunk.noted_unbacked) return;
  chunk.noted_unbacked = unbacked;
  G2Pool& own = pool(chunk);
  if (unbacked) {
    own.unbacked_chunks.Take(1);
    own.unbacked_blocks.Take(chunk.blocks());
  } else {
    own.unbacked_chunks.Give(1);
    own.unbacked_blocks.Give(chunk.blocks());
  }
}

std::span<std::byte> Chunks::ImageMemory(const ExtentList& extents, uint64_t offset,
                                         uint64_t bytes) const {
  return ArenaImage::Run(*deps_.arena, extents, offset, bytes);
}

HeaderPage Chunks::HeaderInArena(const ExtentList& extents) const {
  return HeaderPage(ImageMemory(extents, 0, kHeaderBytes).data(), kHeaderBytes);
}

ImagePlacement Chunks::PlacementOf(Generation generation, const ExtentList& extents) const {
  return {.tier = Tier::kG2,
          .place = deps_.arena->uuid(),
          .incarnation = incarnation_,
          .generation = generation,
          .extents = extents};
}

void Chunks::WithholdBroken() {
  for (const Extent& page : deps_.arena->TakeBroken()) {
    for (const auto& pool : pools) {
      if (pool->Owns(page.first)) pool->Withhold(page);
    }
  }
}

uint64_t Chunks::TakeLongestHoldNs() {
  Section section(this, Section::Kind::kNotMeasured);
  return std::exchange(counters.lock_worked_ns_max, 0);
}

void Chunks::NoteHold(uint64_t held_ns, uint64_t worked_ns, uint64_t waited_ns) {
  ++counters.lock_acquisitions;
  counters.lock_held_ns += held_ns;
  counters.lock_held_ns_max = std::max(counters.lock_held_ns_max, held_ns);
  counters.lock_worked_ns_max = std::max(counters.lock_worked_ns_max, worked_ns);
  lock_hold_.RecordAlone(held_ns);
  lock_wait_.RecordAlone(waited_ns);
}

}  // namespace kvkeep::store_internal
