// The lock, the life of a chunk, and space in G2.
#include "tiers/store/core.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

uint64_t TierBytes(const StoreOptions& options, const StoreDeps& deps) {
  const uint64_t blocks = deps.arena->capacity_blocks().value();
  uint64_t bytes = blocks * kBlockBytes;
  for (size_t d = 0; d < deps.devices.size(); ++d) {
    const NvmeDevice* const device = deps.devices[d].device;
    if (device != nullptr) {
      bytes += device->capacity_blocks().value() * kBlockBytes;
    } else if (!options.g3_capacity_bytes.empty()) {
      bytes += options.g3_capacity_bytes[d];
    }
  }
  return bytes;
}

// An image comes whole (a put), piece by piece (a promotion), or was left by an earlier process and
// is verified. What is being read or verified does not go before that has ended; what failed has no
// way back.
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

}  // namespace

Core::Core(const StoreOptions& options, const StoreDeps& deps)
    : options_(ResolveLimits(options, deps)),
      deps_(deps),
      incarnation_(deps.random->NextU64()),
      owners_(options_.tenants),
      reuse_(TierBytes(options, deps), deps.clock->Now()),
      limits_(options_),
      hold_(deps.hold_work == 0 ? work::kHold : deps.hold_work),
      slots_(std::make_shared<SlotArrays>(static_cast<uint32_t>(options.max_chunks), &toucher_)),
      table_(slots_, deps.random->NextU64()),
      slot_shares_(ClaimsOf(options_, false)),
      g3_shares_(ClaimsOf(options_, true)),
      tenant_counters_(options_.tenants.size() + 1),
      marks_(deps.arena->live_marks()),
      scrubber_(&table_, &hold_, &counters_),
      sessions_(options_, ClaimsOf(options_, false), incarnation_,
                {&owners_, deps_.clock, &counters_, &tenant_counters_}),
      leases_(options_.max_leases_per_session, &table_, &pools_, &counters_),
      puts_(options_.tenants.size()),
      life_(options_.life_sample_one_in),
      meters_(options_.tenants.size()),
      events_(options_.events.log_entries, deps.devices.size(), &table_, &hold_, &counters_) {
  const uint64_t per_segment = deps_.arena->segment_blocks().value();
  const uint64_t all = deps_.arena->capacity_blocks().value();
  const std::vector<Extent> to_come = deps_.arena->ToCome();
  uint64_t first = 0;
  slot_shares_.SetCapacity(options_.max_chunks);
  KVKEEP_CHECK(incarnations_.Add(incarnation_).has_value());
  for (const TenantOptions& tenant : options_.tenants) {
    const uint64_t end = std::min(first + tenant.g2_segments * per_segment, all);
    KVKEEP_CHECK(end > first);  // Store::Create has looked
    const auto number = static_cast<uint32_t>(pools_.size());
    pools_.push_back(std::make_unique<G2Pool>(
        tenant.name, BlockNumber(first), BlockCount(end - first), BlockCount(per_segment),
        G2Pool::Limits{},
        MakeEvictionPolicy(
            options_.g2_policy,
            {.max_chunks = slots_->max_slots(),
             .slots = slots_,
             .shares_memory_with = pools_.empty() ? nullptr : pools_.front()->policy.get()})));
    for (const Extent& extent : to_come) {
      if (pools_.back()->Owns(extent.first)) pools_.back()->AwaitMemory(extent);
    }
    parts_.push_back(static_cast<double>(end - first) / static_cast<double>(all));
    pools_.back()->limits = PoolLimits(options_, number);
    first = end;
    const auto key_of = [&tenant](const KeyRing* ring) {
      const DataKey* const key = ring == nullptr ? nullptr : ring->ForTenant(tenant.name);
      KVKEEP_CHECK(ring == nullptr || key != nullptr);  // as above
      return key;
    };
    write_keys_.push_back(key_of(deps.keys));
    remote_write_keys_.push_back(key_of(deps.remote_keys));
  }
  admissions_ = MakeAdmissions(options_);
  if (deps_.remote != nullptr) {
    const auto number = static_cast<uint16_t>(deps_.devices.size());
    remote_ = std::make_unique<RemoteTier>(number, deps_.remote, deps_.removal_log, options_);
    remote_->pump.SetWork([this] {
      mu_.AssertHeld();
      PumpReads(*remote_);
      PumpRemote();
    });
  }
  scrubber_.SetRate(options_.scrub_bytes_per_second);
}

Core::~Core() {
  KVKEEP_CHECK(!hold_.has_tasks());
}

Core::Section::Section(Core* core, Kind kind) : core_(core), kind_(kind) {
  Lock(/*after_yield=*/false);
}
Core::Section::~Section() { Unlock(/*to_yield=*/false); }

void Core::Section::Lock(bool after_yield) {
  const std::optional<MonotonicTime> asked_at = Take(after_yield);
  woke_ = kind_ == Kind::kServing && std::exchange(core_->at_rest_, false);
  locked_at_ = core_->deps_.clock->Now();
  waited_ns_ = asked_at.has_value() ? static_cast<uint64_t>((locked_at_ - *asked_at).count()) : 0;
  measured_ = kind_ != Kind::kNotMeasured && core_->deps_.work_clock != nullptr &&
              core_->counters_.lock_acquisitions % core_->deps_.work_clock_every == 0;
  if (measured_) worked_at_ = core_->deps_.work_clock->Now();
  core_->hold_.Begin();
}

// When it began to wait. Who finds the lock free did not, and reads no clock for that; to wait for
// a turn is no wait either.
std::optional<MonotonicTime> Core::Section::Take(bool after_yield) {
  FairMutex& mu = core_->mu_;
  if (kind_ == Kind::kJoin && !within_turn()) {
    mu.LockForTurn();
    return std::nullopt;
  }
  if (!(after_yield && mu.has_waiters()) && mu.TryLock()) return std::nullopt;
  const MonotonicTime asked_at = core_->deps_.clock->Now();
  mu.LockInLine();
  return asked_at;
}

void Core::Section::Unlock(bool to_yield) {
  if (kind_ != Kind::kNotMeasured) {
    const auto held = static_cast<uint64_t>((core_->deps_.clock->Now() - locked_at_).count());
    // Who held it for so long did not work longer: the clock, a system call, says nothing new then.
    uint64_t worked = 0;
    if (measured_ && held > core_->counters_.lock_worked_ns_max) {
      worked = static_cast<uint64_t>((core_->deps_.work_clock->Now() - worked_at_).count());
    }
    core_->NoteHold(held, worked);
    core_->lock_wait_.RecordAlone(waited_ns_);
  }
  std::optional<Hold::Tasks> work = core_->hold_.TakeTasks();
  if (kind_ == Kind::kJoin && !(to_yield && within_turn())) core_->mu_.EndTurn();
  core_->mu_.Unlock();
  if (woke_ && core_->deps_.wake) core_->deps_.wake();
  if (!work.has_value()) return;
  for (auto& item : *work) std::move(item)();
}

void Core::Section::Yield() {
  ++yields_;
  Unlock(/*to_yield=*/true);
  if (core_->deps_.between_slices) core_->deps_.between_slices();
  Lock(/*after_yield=*/true);
}

bool Core::Section::YieldIfSpent() {
  if (!core_->Spent()) return false;
  Yield();
  return true;
}

uint64_t Core::TakeLongestHoldNs() {
  Section section(this, Section::Kind::kNotMeasured);
  return std::exchange(counters_.lock_worked_ns_max, 0);
}

void Core::NoteHold(uint64_t held_ns, uint64_t worked_ns) {
  ++counters_.lock_acquisitions;
  counters_.lock_held_ns += held_ns;
  counters_.lock_held_ns_max = std::max(counters_.lock_held_ns_max, held_ns);
  counters_.lock_worked_ns_max = std::max(counters_.lock_worked_ns_max, worked_ns);
  lock_hold_.RecordAlone(held_ns);
}

Core::Change::Change(Core* core, ChunkSlot slot)
    : core_(core),
      slot_(slot),
      chunk_(core->table_.at(slot)),
      was_evictable_(chunk_.evictable_from_g2()) {
  KVKEEP_CHECK(chunk_.live);
}

Core::Change::~Change() {
  core_->mu_.AssertHeld();
  core_->Settle(slot_, was_evictable_);
}

std::span<std::byte> Core::ImageMemory(const ExtentList& extents, uint64_t offset,
                                       uint64_t bytes) const {
  return ArenaImage::Run(*deps_.arena, extents, offset, bytes);
}

HeaderPage Core::HeaderInArena(const ExtentList& extents) const {
  return HeaderPage(ImageMemory(extents, 0, kHeaderBytes).data(), kHeaderBytes);
}

ImagePlacement Core::G2Placement(Generation generation, const ExtentList& extents) const {
  return {.tier = Tier::kG2,
          .place = deps_.arena->uuid(),
          .incarnation = incarnation_,
          .generation = generation,
          .extents = extents};
}

// Here, as the simulator plants a bug in it.
bool Chunk::evictable_from_g2() const {
  return in_g2_policy && in_g2() && !being_read() &&
         (pins == 0 || Planted(Canary::kReuseUnderLease)) && !dirty() && !sending;
}

void Core::Settle(ChunkSlot slot, bool was_evictable) {
  Chunk& chunk = table_.at(slot);
  if (chunk.detached) {
    if (chunk.has_g2_space() && !chunk.in_use()) {
      FreeG2Copy(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
    if (chunk.g3_state == G3State::kStored && !chunk.g3_reading) {
      RemoveFromG3(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  const bool evictable = chunk.evictable_from_g2();
  if (evictable && !was_evictable) {
    pool(chunk).evictable_blocks += chunk.blocks();
    pool(chunk).policy->Unpark(slot);
  } else if (!evictable && was_evictable) {
    KVKEEP_CHECK(pool(chunk).evictable_blocks >= chunk.blocks());
    pool(chunk).evictable_blocks -= chunk.blocks();
  }
  const auto gone = [&chunk] {
    return !chunk.has_g2_space() && chunk.g3_state == G3State::kAbsent;
  };
  if (gone() && !chunk.detached) ReturnReplaced(slot);
  events_.NoteTiers(chunk);
  NoteUnbacked(chunk);
  if (gone()) {
    KVKEEP_CHECK(chunk.pins == 0 && !chunk.in_g2_policy && !chunk.in_g3_policy);
    KVKEEP_CHECK(!chunk.sending && !chunk.g3_reading && !chunk.waits_unbacked);
    KVKEEP_CHECK(chunk.g2.empty() && chunk.g3.empty());
    if (!chunk.detached) ForgetReplaced(chunk.id);
    durable_waiters_.Fail(slot, absl::NotFoundError("the chunk was evicted or deleted"));
    slot_shares_.Give(chunk.tenant, 1);
    if (remote_ != nullptr) remote_->EndWait(slot);
    table_.Destroy(slot);
  }
}

ChunkSlot Core::CreateChunk(const ChunkId& id, const ImageShape& shape) {
  const ChunkSlot slot = table_.Create(id, shape);
  if (slot == kNoSlot) return slot;
  table_.at(slot).tenant = owners_.OwnerOf(id.ns);
  slot_shares_.Take(table_.at(slot).tenant, 1);
  return slot;
}

void Core::Pin(ChunkSlot slot) {
  if (table_.at(slot).g2_state == G2State::kUnverified) StartVerification(slot);
  Count(work::kPin);
  Change chunk(this, slot);
  KVKEEP_CHECK(chunk->has_g2_space() && !chunk->failed());
  KVKEEP_CHECK(!chunk->detached || chunk->pins > 0);  // a lease may hold one that was deleted
  if (chunk->pins++ == 0) pool(*chunk).pinned_blocks += chunk->blocks();
}

void Core::UnpinLocked(ChunkSlot slot) {
  Count(work::kPin);
  Change chunk(this, slot);
  KVKEEP_CHECK(chunk->pins > 0);
  KVKEEP_CHECK(pool(*chunk).pinned_blocks >= chunk->blocks());
  if (--chunk->pins == 0) pool(*chunk).pinned_blocks -= chunk->blocks();
}

void Core::Unpin(ChunkSlot slot, bool lent) {
  Section section(this);
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!lent || pool(chunk).lent_blocks >= chunk.blocks());
  if (lent) pool(chunk).lent_blocks -= chunk.blocks();
  UnpinLocked(slot);
}

void Core::InsertIntoG2Policy(ChunkSlot slot, ChunkSlot parent) {
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!chunk.in_g2_policy && chunk.has_g2_space() && !chunk.detached);
  const bool parent_here = parent != kNoSlot && table_.at(parent).in_g2_policy;
  const Fingerprint fingerprint = table_.fingerprint(chunk.id);
  const MonotonicTime now = deps_.clock->Now();
  pool(chunk).policy->OnInsert({.slot = slot,
                                .fingerprint = fingerprint,
                                .parent = parent_here ? parent : kNoSlot,
                                .blocks = static_cast<uint32_t>(chunk.blocks()),
                                .transient = chunk.transient},
                               now);
  life_.OnStored(fingerprint, LifeSamples::kG2, now);
  chunk.in_g2_policy = true;
}

Fingerprint Core::InsertIntoG3Policy(ChunkSlot slot, ChunkSlot parent, MonotonicTime now) {
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!chunk.in_g3_policy);
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.detached);
  const bool parent_here = parent != kNoSlot && table_.at(parent).in_g3_policy &&
                           table_.at(parent).device == chunk.device;
  const Fingerprint fingerprint = table_.fingerprint(chunk.id);
  g3_policy(chunk).OnInsert({.slot = slot,
                             .fingerprint = fingerprint,
                             .parent = parent_here ? parent : kNoSlot,
                             .blocks = static_cast<uint32_t>(chunk.blocks()),
                             .transient = chunk.transient},
                            now);
  life_.OnStored(fingerprint, LifeSamples::kG3, now);
  chunk.in_g3_policy = true;
  // The join begins with what is saved.
  DeviceTier& tier = *devices_[chunk.device];
  if (tier.here()) tier.unsaved_recency.NoteStored(chunk, slot);
  return fingerprint;
}

void Core::NoteGone(const Chunk& chunk, LifeSamples::Where where,
                    EvictionPolicy::EraseReason reason) {
  const Fingerprint fingerprint = table_.fingerprint(chunk.id);
  if (!life_.Sampled(fingerprint)) return;
  if (reason == EvictionPolicy::EraseReason::kEvicted) {
    life_.OnEvicted(fingerprint, where, deps_.clock->Now());
  } else {
    life_.OnRemoved(fingerprint, where);
  }
}

// Every change of a chunk's G2 state goes through here, so that its pool counts its images right.
void Core::SetG2State(Chunk& chunk, G2State to) {
  KVKEEP_CHECK(MayBecome(chunk.g2_state, to));
  const bool had_image = chunk.in_g2();
  chunk.g2_state = to;
  if (had_image == chunk.in_g2()) return;
  G2Pool& own = pool(chunk);
  KVKEEP_CHECK(!had_image || own.chunks > 0);
  own.chunks = had_image ? own.chunks - 1 : own.chunks + 1;
}

void Core::FreeG2Copy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  KVKEEP_CHECK(chunk.has_g2_space() && !chunk.dirty() && !chunk.sending);
  EndUnbackedWait(slot);
  KVKEEP_CHECK(chunk.pins == 0 || Planted(Canary::kReuseUnderLease));
  if (chunk.in_g2_policy) pool(chunk).policy->OnErase(slot, reason);
  NoteGone(chunk, LifeSamples::kG2, reason);
  chunk.in_g2_policy = false;
  marks_.Clear(chunk.g2.first_block());  // before anybody else gets the blocks
  pool(chunk).Free(chunk.g2);
  chunk.g2.clear();
  SetG2State(chunk, G2State::kAbsent);
}

Core::Evicted Core::EvictOneFromG2(G2Pool& pool) {
  while (const std::optional<ChunkSlot> victim = pool.policy->Victim()) {
    if (!table_.at(*victim).evictable_from_g2()) {
      pool.policy->Park(*victim);
      Count(work::kPark);
      if (Spent()) return Evicted::kSpent;
      continue;
    }
    Change chunk(this, *victim);
    KVKEEP_CHECK(&this->pool(*chunk) == &pool);
    ++counters_.g2_evictions;
    ++tenant_counters_[chunk->tenant.value()].g2_evictions;
    if (chunk->g3_state == G3State::kAbsent) ++counters_.unbacked_evictions;
    FreeG2Copy(*chunk, *victim, EvictionPolicy::EraseReason::kEvicted);
    Count(work::kEvict);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

std::optional<ExtentList> Core::AllocateG2(Section& section, TenantId tenant, uint64_t blocks,
                                           ChunkSlot parent) {
  G2Pool& from = pool(tenant);
  Count(work::kAllocate);
  // Of the pool's gathered_blocks: what this call has freed and keeps for itself.
  uint64_t mine = 0;
  const auto mine_now = [&](uint64_t blocks_now) {
    KVKEEP_CHECK(from.gathered_blocks >= mine);
    from.gathered_blocks = from.gathered_blocks - mine + blocks_now;
    mine = blocks_now;
  };
  while (true) {
    // Evict nothing for a request that cannot be met.
    if (from.free_blocks(mine, from.evictable_blocks) < blocks) break;
    if (from.free_blocks(mine) >= blocks) {
      // Looked up each time: the parent may be among those evicted, or its slot another's. Then the
      // place is no worse than any.
      std::optional<BlockNumber> near;
      if (parent != kNoSlot && table_.at(parent).has_g2_space()) {
        near = BlockNumber(table_.at(parent).g2.end_block());
      }
      std::optional<ExtentList> extents = from.Allocate(BlockCount(blocks), near);
      if (extents.has_value()) {
        mine_now(0);
        return extents;
      }
    }
    if (!Spent() && EvictOneFromG2(from) == Evicted::kNone) break;
    if (Spent()) {
      mine_now(std::min(from.free_blocks(mine), blocks));
      section.Yield();
    }
  }
  mine_now(0);
  return std::nullopt;
}

void Core::DetachChunk(ChunkSlot slot) {
  ForgetReplaced(table_.at(slot).id);
  // Where it cannot leave G3 at once its record goes before: a delete waits for no reader.
  const Chunk& chunk = table_.at(slot);
  const bool stays = chunk.g3_state == G3State::kStored && chunk.g3_reading;
  if (stays || chunk.g3_state == G3State::kCommitting) {
    RemoveRecord(*devices_[chunk.device], chunk.id);
  }
  DetachOnly(slot);
}

void Core::RemoveRecord(DeviceTier& tier, const ChunkId& id) {
  tier.commits.Remove({id, {}});
  if (!tier.commits.under_way()) PumpLater(tier);
}

void Core::DetachOnly(ChunkSlot slot) {
  Change chunk(this, slot);
  Count(work::kEvict);
  KVKEEP_CHECK(chunk->has_g2_space() || chunk->g3_state == G3State::kStored);
  table_.Detach(slot);
  EndUnbackedWait(slot);
  // Readers may keep the bytes for long; a restart must not bring them back.
  if (chunk->has_g2_space()) marks_.Clear(chunk->g2.first_block());
  if (chunk->in_g2_policy) {
    pool(*chunk).policy->OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
  }
  chunk->in_g2_policy = false;
  if (chunk->in_g3_policy) {
    g3_policy(*chunk).OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
  }
  chunk->in_g3_policy = false;
  // What is being written already ends by itself.
  if (chunk->g3_state == G3State::kQueued) {
    devices_[chunk->device]->writes.Remove(chunk->g3_generation);
    SetG3State(*chunk, G3State::kAbsent);
  }
  durable_waiters_.Fail(slot, absl::NotFoundError("the chunk was deleted"));
}

}  // namespace kvkeep::store_internal
