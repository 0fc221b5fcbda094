#include "tiers/store/device_tiers.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

// A write-back goes step by step, and may be given up at each step. A chunk that gets its state
// from a record is stored at once.
constexpr bool MayBecome(G3State from, G3State to) {
  using enum G3State;
  switch (from) {
    case kAbsent:
      return to == kQueued || to == kStored;
    case kQueued:
      return to == kWriting || to == kAbsent;
    case kWriting:
      return to == kCommitting || to == kAbsent;
    case kCommitting:
      return to == kStored || to == kAbsent;
    case kStored:
      return to == kAbsent;
  }
  return false;
}

}  // namespace

DeviceTiers::DeviceTiers(const StoreOptions& options, const StoreDeps& deps,
                         std::vector<Shares::Claim> claims, Chunks* chunks, EventHub* events)
    : shares(std::move(claims)),
      durable_waiters(&chunks->hold),
      chunks_(*chunks),
      events_(*events),
      clock_(*deps.clock),
      place_nodes_(chunks->slots->Add<PlaceIndex::Node>()) {
  KVKEEP_CHECK(incarnations.Add(chunks_.incarnation()).has_value());
  for (uint16_t device = 0; device < deps.devices.size(); ++device) {
    auto tier = std::make_unique<DeviceTier>(device, deps.mac_key, options, &incarnations);
    if (deps.devices[device].coming) tier->coming_until = clock_.Now() + kComingPatience;
    MakePolicies(*tier, options);
    devices_.push_back(std::move(tier));
    events_.NoteReadable(device, false);
  }
}

// Makes one policy for each tenant; Nobody's is last. A chunk is on one device and of one tenant,
// so all policies note slots in the same memory. A tenant's policies of all devices learn together.
void DeviceTiers::MakePolicies(DeviceTier& tier, const StoreOptions& options) {
  for (size_t i = 0; i <= options.tenants.size(); ++i) {
    const DeviceTier& first = devices_.empty() ? tier : *devices_.front();
    tier.policies.push_back(MakeEvictionPolicy(
        options.g3_policy,
        {.max_chunks = chunks_.slots->max_slots(),
         .slots = chunks_.slots,
         .shares_memory_with = first.policies.empty() ? nullptr : first.policies[0].get(),
         .learns_with = devices_.empty() ? nullptr : first.policies[i].get(),
         .learns_apart = true}));
  }
}

// ---- the devices

bool DeviceTiers::AnyJoins() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& tier) {
    return tier->presence == DeviceTier::Presence::kJoining;
  });
}

bool DeviceTiers::AnyComes() const {
  const MonotonicTime now = clock_.Now();
  return std::any_of(devices_.begin(), devices_.end(),
                     [now](const auto& tier) { return now < tier->coming_until; });
}

bool DeviceTiers::AnyTakesWrites() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const auto& tier) { return tier->TakesWrites(); });
}

void DeviceTiers::LookAtIndexesAgain() {
  for (const auto& tier : devices_) {
    if (tier->writable()) tier->syncs.NoteDirty();
  }
}

bool DeviceTiers::CanGive(TenantId tenant) const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [tenant](const auto& tier) { return tier->CanGive(tenant); });
}

void DeviceTiers::NoteIo(LowerTier& tier, bool write, const absl::Status& status) {
  if (IsHostShort(status)) {  // this passes, and says nothing about the device
    ++chunks_.counters.host_short_ios;
    return;
  }
  tier.NoteIo(write, status, clock_.Now());
  if (!status.ok() && tier.has_records()) events_.NoteReadable(tier.number, tier.readable());
}

void DeviceTiers::NoteFailedSync(DeviceTier& tier, const absl::Status& status) {
  ++chunks_.counters.sync_failures;
  tier.health.NoteFailedSync(status);
  events_.NoteReadable(tier.number, tier.readable());
}

void DeviceTiers::NoteMissed(const ChunkSet& deleted) {
  for (const auto& tier : devices_) {
    if (tier->here()) continue;
    chunks_.Count(static_cast<uint32_t>(work::kFind * deleted.keys.size() * deleted.parts.size()));
    for (const ChunkKey& key : deleted.keys) {
      for (const PartId& part : deleted.parts) tier->missed.Add({deleted.ns, key, part});
    }
  }
}

void DeviceTiers::NoteMissed(const std::optional<NamespaceDigest>& cleared) {
  for (const auto& tier : devices_) {
    if (tier->here()) continue;
    cleared.has_value() ? tier->missed.AddNamespace(*cleared) : tier->missed.AddAll();
  }
}

// ---- for the owner of the devices

std::vector<NvmeDevice*> DeviceTiers::Attached() {
  std::vector<NvmeDevice*> devices;
  devices.reserve(devices_.size());
  Section section(&chunks_, Section::Kind::kNotMeasured);
  for (const auto& tier : devices_) devices.push_back(tier->device);
  return devices;
}

std::optional<DeviceState> DeviceTiers::StateOfAnswering(size_t device) {
  Section section(&chunks_, Section::Kind::kNotMeasured);
  const DeviceTier& tier = at(device);
  if (!tier.here() || tier.health.stuck()) return std::nullopt;
  return tier.health.state();
}

void DeviceTiers::NotComing(size_t device) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  DeviceTier& tier = at(device);
  if (tier.presence == DeviceTier::Presence::kAway) tier.coming_until = MonotonicTime(0);
}

std::unique_ptr<PlaceIndex> DeviceTiers::MakePlaces(BlockCount blocks) const {
  return std::make_unique<PlaceIndex>(BlockNumber(0), blocks, place_nodes_);
}

// ---- a chunk in G3

bool DeviceTiers::InG3(const Chunk& chunk) const {
  return chunk.g3_state == G3State::kStored && !chunk.unconfirmed && of(chunk).readable();
}

Fingerprint DeviceTiers::InsertIntoPolicy(ChunkSlot slot, ChunkSlot parent, MonotonicTime now) {
  Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(!chunk.in_g3_policy);
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.detached);
  const bool parent_here = parent != kNoSlot && chunks_.table.at(parent).in_g3_policy &&
                           chunks_.table.at(parent).device == chunk.device;
  const Fingerprint fingerprint = chunks_.table.fingerprint(chunk.id);
  policy(chunk).OnInsert({.slot = slot,
                          .fingerprint = fingerprint,
                          .parent = parent_here ? parent : kNoSlot,
                          .blocks = static_cast<uint32_t>(chunk.blocks()),
                          .transient = chunk.transient},
                         now);
  chunks_.life.OnStored(fingerprint, LifeSamples::kG3, now);
  chunk.in_g3_policy = true;
  DeviceTier& tier = of(chunk);
  tier.places->Add(slot, chunk.g3.first_block());
  // While the device joins, the saved recency is right.
  if (tier.here()) tier.unsaved_recency.NoteStored(chunk, slot);
  return fingerprint;
}

void DeviceTiers::EraseFromPolicy(Chunk& chunk, ChunkSlot slot,
                                  EvictionPolicy::EraseReason reason) {
  if (!chunk.in_g3_policy) return;
  policy(chunk).OnErase(slot, reason);
  of(chunk).places->Remove(slot, chunk.g3.first_block());
  chunk.in_g3_policy = false;
}

// Every change of a chunk's G3 state goes through here, so that the dirty accounts are right.
void DeviceTiers::SetState(Chunk& chunk, G3State state) {
  KVKEEP_CHECK(MayBecome(chunk.g3_state, state));
  const bool was_dirty = chunk.dirty();
  chunk.g3_state = state;
  KVKEEP_CHECK(!chunk.dirty() || chunk.resident());
  if (chunk.dirty() && !was_dirty) {
    chunks_.pool(chunk).dirty_blocks.Take(chunk.blocks());
    write_backs.Begin(chunk.g3_generation, clock_.Now());
  } else if (!chunk.dirty() && was_dirty) {
    chunks_.pool(chunk).dirty_blocks.Give(chunk.blocks());
    write_backs.End(chunk.g3_generation);
  }
}

void DeviceTiers::OnDetached(Chunk& chunk, ChunkSlot slot) {
  EraseFromPolicy(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  if (chunk.g3_state == G3State::kQueued) {
    of(chunk).writes.Remove(chunk.g3_generation);
    SetState(chunk, G3State::kAbsent);
  }
  durable_waiters.Fail(slot, absl::NotFoundError("the chunk was deleted"));
}

void DeviceTiers::StoreBy(Chunk& chunk, DeviceTier& tier, ExtentList extents,
                          const KnownRecord& record) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kAbsent && chunk.g3.empty() && !extents.empty());
  KVKEEP_CHECK(chunk.shape == record.shape);
  chunk.g3 = std::move(extents);
  chunk.device = tier.number;
  chunk.g3_incarnation = *incarnations.Add(record.incarnation);
  chunk.g3_generation = record.generation;
  chunk.g3_sequence = record.sequence;
  chunk.doubtful = record.doubtful;
  chunk.unconfirmed = record.unconfirmed;
  SetState(chunk, G3State::kStored);
  ++tier.chunks;
}

ExtentList DeviceTiers::TakeOff(Chunk& chunk, ChunkSlot slot) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.g3_reading);
  const bool in_order = chunk.in_g3_policy;
  EraseFromPolicy(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  if (in_order) chunks_.NoteGone(chunk, LifeSamples::kG3, EvictionPolicy::EraseReason::kRemoved);
  ExtentList extents = std::move(chunk.g3);
  ClearRecord(chunk);
  return extents;
}

void DeviceTiers::ClearRecord(Chunk& chunk) {
  KVKEEP_CHECK(of(chunk).chunks > 0);
  --of(chunk).chunks;
  chunk.g3.clear();
  chunk.unconfirmed = chunk.doubtful = false;  // these were about the record
  SetState(chunk, G3State::kAbsent);
}

KnownRecord DeviceTiers::RecordOf(const Chunk& chunk) const {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored);
  return {.shape = chunk.shape,
          .incarnation = incarnations.At(chunk.g3_incarnation),
          .generation = chunk.g3_generation,
          .sequence = chunk.g3_sequence,
          .unconfirmed = chunk.unconfirmed,
          .doubtful = chunk.doubtful};
}

void DeviceTiers::RemoveRecord(DeviceTier& tier, const ChunkId& id) {
  QueueRemoval(tier, {id, {}});
}

// Pumps later, since many chunks may go in one hold: one batch has all of their removals.
void DeviceTiers::QueueRemoval(DeviceTier& tier, PendingRemove remove) {
  tier.commits.Remove(std::move(remove));
  if (!tier.commits.under_way()) chunks_.PumpLater(tier.pump);
}

// ---- write-backs

void DeviceTiers::GiveUpWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                                  const absl::Status& why) {
  chunks_.Count(work::kEvict);
  ++chunks_.counters.write_backs_cancelled;
  durable_waiters.Fail(slot, why.ok() ? absl::NotFoundError("the chunk was deleted") : why);
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(chunk->dirty());
  if (!chunk->g3.empty()) {
    of(*chunk).GiveBack(chunk->g3);
    shares.Give(chunk->tenant, chunk->blocks());
  }
  chunk->g3.clear();
  SetState(*chunk, G3State::kAbsent);
  if (absl::IsUnavailable(why) || IsHostShort(why)) WaitAgain(slot, parent);
}

void DeviceTiers::WaitUnbacked(ChunkSlot slot, ChunkSlot parent) {
  const Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(chunk.resident() && chunk.g3_state == G3State::kAbsent);
  if (chunks_.draining || chunk.waits_unbacked) return;
  chunks_.pool(chunk).unbacked.Push(chunks_.table, slot, parent);
}

void DeviceTiers::WaitAgain(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.detached || !chunk.resident()) return;
  write_backs.NoteNotTaken(clock_.Now());
  WaitUnbacked(slot, chunks_.table.FindParent(chunk, parent));
}

}  // namespace kvkeep::store_internal
