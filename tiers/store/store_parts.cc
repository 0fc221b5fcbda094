#include "tiers/store/store_parts.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/section.h"

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

// Returns the keys by TenantId; null: there is no ring.
std::vector<const DataKey*> KeysOf(const StoreOptions& options, const KeyRing* ring) {
  std::vector<const DataKey*> keys;
  for (const TenantOptions& tenant : options.tenants) {
    keys.push_back(ring == nullptr ? nullptr : ring->ForTenant(tenant.name));
    KVKEEP_CHECK(ring == nullptr || keys.back() != nullptr);  // Store::Create checks it
  }
  return keys;
}

// If more time than this is between two ticks, the process was stopped, or busy with starting.
// Nobody heard what a device answered meanwhile.
constexpr std::chrono::nanoseconds kMostOfATick = std::chrono::seconds(1);

}  // namespace

StoreParts::StoreParts(const StoreOptions& with, const StoreDeps& from)
    : options(Limits::Resolve(with, from)),
      deps(from),
      owners(options.tenants),
      reuse(TierBytes(with, deps), deps.clock->Now()),
      chunks(options, deps, Incarnation(deps.random->NextU64()), Limits::ClaimsOf(options, false),
             &owners, this),
      events(options.events.log_entries, deps.devices.size(), &chunks.table, &chunks.hold,
             &chunks.counters),
      scrubber(&chunks.table, &chunks.hold, &chunks.counters),
      verifier(deps.arena, deps.keys, deps.remote_keys),
      filler(&chunks, &verifier, deps, &outcomes),
      disk(options, deps, Limits::ClaimsOf(options, true), KeysOf(options, deps.keys), buffers,
           {.chunks = &chunks,
            .filler = &filler,
            .verifier = &verifier,
            .scrubber = &scrubber,
            .sweeper = &sweeper,
            .events = &events,
            .reuse = &reuse}),
      sweeper(deps, &chunks, &disk.tiers, &disk.records, &filler, &owners, &reuse),
      promoter(&chunks, &disk.tiers, &filler),
      scrub_reader(&chunks, &disk.tiers, &disk.records, &scrubber, &promoter, &filler),
      room(&chunks, &disk.tiers, &disk.space),
      beyond(deps.remote == nullptr
                 ? nullptr
                 : std::make_unique<BeyondNode>(options, deps, KeysOf(options, deps.remote_keys),
                                                buffers, &chunks, &filler, &room)),
      outcomes(deps.clock, {.chunks = &chunks,
                            .tiers = &disk.tiers,
                            .records = &disk.records,
                            .writes = &disk.writes,
                            .scrubber = &scrubber,
                            .sweeper = &sweeper,
                            .beyond = beyond.get()}),
      served(&chunks, &owners, beyond.get()),
      learning(deps.background(), &chunks, &disk.tiers),
      sessions(options, Limits::ClaimsOf(options, false), deps, &chunks, &owners, &served, &events),
      finder(deps.clock, {.chunks = &chunks,
                          .tiers = &disk.tiers,
                          .writes = &disk.writes,
                          .learning = &learning,
                          .promotions = &filler,
                          .beyond = beyond.get()}),
      granter(&chunks, &sessions, &promoter, &served),
      lookups(options, {.chunks = &chunks,
                        .tiers = &disk.tiers,
                        .filler = &filler,
                        .promoter = &promoter,
                        .finder = &finder,
                        .granter = &granter,
                        .sessions = &sessions,
                        .owners = &owners,
                        .reuse = &reuse,
                        .beyond = beyond.get()}),
      puts(options, deps,
           {.chunks = &chunks,
            .tiers = &disk.tiers,
            .records = &disk.records,
            .writes = &disk.writes,
            .learning = &learning,
            .room = &room,
            .sessions = &sessions,
            .reuse = &reuse,
            .beyond = beyond.get()}),
      deletes(deps.clock, {.chunks = &chunks,
                           .tiers = &disk.tiers,
                           .records = &disk.records,
                           .committer = &disk.committer,
                           .sessions = &sessions,
                           .reuse = &reuse,
                           .beyond = beyond.get()}),
      reads(deps.clock, {.chunks = &chunks,
                         .tiers = &disk.tiers,
                         .filler = &filler,
                         .promoter = &promoter,
                         .sessions = &sessions,
                         .served = &served,
                         .owners = &owners}),
      peer_reads({.chunks = &chunks,
                  .tiers = &disk.tiers,
                  .promoter = &promoter,
                  .reads = &reads,
                  .beyond = beyond.get()}),
      peer_offers(deps.clock, options.tenants.size(),
                  {.chunks = &chunks,
                   .tiers = &disk.tiers,
                   .owners = &owners,
                   .reads = &peer_reads,
                   .beyond = beyond.get()}),
      metadata(deps.mac_key, &chunks, &disk.tiers, &reads),
      watches(options, &chunks, &events, &sessions),
      operators(options, {.chunks = &chunks,
                          .tiers = &disk.tiers,
                          .space = &disk.space,
                          .sessions = &sessions,
                          .owners = &owners,
                          .scrubber = &scrubber}),
      limits(options, deps,
             {.chunks = &chunks,
              .tiers = &disk.tiers,
              .space = &disk.space,
              .trimmer = &disk.trimmer,
              .writes = &disk.writes,
              .sessions = &sessions,
              .scrubber = &scrubber,
              .beyond = beyond.get()}) {}

absl::Status StoreParts::Recover() {
  sweeper.Recover();
  {
    Section section(&chunks, Section::Kind::kNotMeasured);  // nobody is served yet
    // What the log names stays there until there is a place to remove it from.
    if (beyond != nullptr && beyond->tier.keeps() && deps.removal_log != nullptr) {
      for (const ChunkId& id : deps.removal_log->Left()) {
        // A chunk of Nobody waits for a start at which its tenant is configured again.
        if (!chunks.HasPool(owners.OwnerOf(id.ns))) continue;
        beyond->tier.removals.Add(id, RemoteRemovals::Why::kDeleted);
      }
    }
  }
  return disk.joiner.JoinAtStart();
}

// ---- ChunkHooks

void StoreParts::Verify(ChunkSlot slot) { filler.Verify(slot); }

void StoreParts::OnDetached(Chunk& chunk, ChunkSlot slot) { disk.tiers.OnDetached(chunk, slot); }

void StoreParts::LeaveG3(Chunk& chunk, ChunkSlot slot) {
  disk.records.Remove(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
}

void StoreParts::OnHomeless(ChunkSlot slot) { disk.records.Return(slot); }

void StoreParts::OnChanged(Chunk& chunk) { events.NoteTiers(chunk); }

void StoreParts::OnGone(const Chunk& chunk, ChunkSlot slot) {
  if (!chunk.detached) disk.records.Forget(chunk.id);
  DurableWaiters& waiters = disk.tiers.durable_waiters;
  if (waiters.Has(slot)) {  // checked first, as making an error takes memory
    waiters.Fail(slot, absl::NotFoundError("the chunk was evicted or deleted"));
  }
  if (beyond != nullptr) beyond->tier.EndWait(slot);
}

// ---- what is due

bool StoreParts::Tick() {
  Section section(&chunks, Section::Kind::kMaintenance);
  const MonotonicTime now = deps.clock->Now();
  const auto passed = std::min(now - last_tick_.value_or(now), kMostOfATick);
  last_tick_ = now;
  disk.Tick(section, passed);
  if (beyond != nullptr) {
    beyond->changes.Tick();
    beyond->recaller.Tick();
  }
  sweeper.Tick(section);
  learning.Tick();
  disk.writes.WriteForWaiters(section);
  scrubber.Pay(now);
  scrub_reader.Next(section);
  const bool at_rest = IsAtRest();
  chunks.SetAtRest(at_rest);
  return at_rest;
}

bool StoreParts::IsAtRest() const {
  if (chunks.draining || scrubber.on() || !sweeper.at_rest() || !disk.at_rest()) return false;
  if (!learning.at_rest()) return false;
  return beyond == nullptr || beyond->tier.at_rest();
}

// Writes all chunks that wait, whatever the budget says, so that G3 keeps them over the stop.
// Chunks that could not be written beyond the node are offered there once more.
void StoreParts::BeginDrain(bool write_remote) {
  Section section(&chunks);
  chunks.draining = true;
  learning.Stop();
  if (beyond != nullptr) {
    beyond->recaller.BeginDrain();
    beyond->changes.BeginDrain(section, write_remote);
  }
  disk.writes.DrainUnbacked(section);
}

bool StoreParts::BeyondIsQuiet() {
  Section section(&chunks, Section::Kind::kNotMeasured);
  return beyond == nullptr || beyond->tier.quiet();
}

}  // namespace kvkeep::store_internal
