// The store's parts put together, and what happens in other tiers when a chunk changes.
#include "tiers/store/core.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/gathering.h"

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

std::unique_ptr<RemoteTier> RemoteOf(const StoreOptions& options, const StoreDeps& deps) {
  if (deps.remote == nullptr) return nullptr;
  const auto number = static_cast<uint16_t>(deps.devices.size());
  return std::make_unique<RemoteTier>(number, deps.remote, deps.removal_log, options);
}

// By TenantId. Null: there is no ring.
std::vector<const DataKey*> KeysOf(const StoreOptions& options, const KeyRing* ring) {
  std::vector<const DataKey*> keys;
  for (const TenantOptions& tenant : options.tenants) {
    keys.push_back(ring == nullptr ? nullptr : ring->ForTenant(tenant.name));
    KVKEEP_CHECK(ring == nullptr || keys.back() != nullptr);  // Store::Create has looked
  }
  return keys;
}

// When more than this lies between two ticks, we were stopped, or busy with starting: what a device
// answered meanwhile nobody heard.
constexpr std::chrono::nanoseconds kMostOfATick = std::chrono::seconds(1);

}  // namespace

Core::Core(const StoreOptions& options, const StoreDeps& deps)
    : options_(ResolveLimits(options, deps)),
      deps_(deps),
      incarnation_(deps.random->NextU64()),
      owners_(options_.tenants),
      reuse_(TierBytes(options, deps), deps.clock->Now()),
      chunks_(options_, deps_, incarnation_, ClaimsOf(options_, false), &owners_, this),
      events_(options_.events.log_entries, deps.devices.size(), &chunks_.table, &chunks_.hold,
              &chunks_.counters),
      scrubber_(&chunks_.table, &chunks_.hold, &chunks_.counters),
      verifier_(deps.arena, deps.keys, deps.remote_keys),
      filler_(&chunks_, &verifier_, deps_, &outcomes_),
      disk_(options_, deps_, ClaimsOf(options_, true), KeysOf(options_, deps.keys),
            cipher_buffers_,
            {.chunks = &chunks_,
             .filler = &filler_,
             .verifier = &verifier_,
             .scrubber = &scrubber_,
             .sweeper = &sweeper_,
             .events = &events_,
             .reuse = &reuse_}),
      sweeper_(deps_, &chunks_, &disk_.tiers, &disk_.records, &filler_, &owners_, &reuse_),
      promoter_(&chunks_, &disk_.tiers, &filler_),
      scrub_reader_(&chunks_, &disk_.tiers, &disk_.records, &scrubber_, &promoter_, &filler_),
      outcomes_(deps.clock, {.chunks = &chunks_,
                             .tiers = &disk_.tiers,
                             .records = &disk_.records,
                             .writes = &disk_.writes,
                             .scrubber = &scrubber_,
                             .sweeper = &sweeper_}),
      limits_(options_),
      sessions_(options_, ClaimsOf(options_, false), incarnation_,
                {&owners_, deps_.clock, &counters_, &tenant_counters_}),
      leases_(options_.max_leases_per_session, &table_, &pools_, &counters_),
      puts_(options_.tenants.size()),
      meters_(options_.tenants.size()),
      remote_(RemoteOf(options_, deps)) {
  for (size_t tenant = 0; tenant < pools_.size(); ++tenant) {
    pools_[tenant]->limits = PoolLimits(options_, tenant);
  }
  WriteBacker::Admissions admissions = MakeAdmissions(options_);
  disk_.writes.SwapAdmissions(admissions);
  scrubber_.SetRate(options_.scrub_bytes_per_second);
  if (remote_ == nullptr) return;
  beyond_ = std::make_unique<Beyond>(&chunks_, remote_.get(), deps_,
                                     KeysOf(options_, deps.remote_keys), cipher_buffers_,
                                     options_.remote_write_bytes_per_second);
  recaller_ = std::make_unique<Recaller>(&chunks_, remote_.get(), &filler_,
                                         static_cast<Recaller::Host*>(this), deps_.clock);
  outcomes_.SetBeyond(remote_.get(), recaller_.get());
  remote_->pump.SetWork([this] {
    chunks_.AssertHeld();
    filler_.PumpReads(*remote_);
    beyond_->Pump();
  });
}

absl::Status Core::Recover() {
  {
    Section section(&chunks_, Section::Kind::kNotMeasured);  // nobody is served yet
    sweeper_.Recover();
    if (remote_ != nullptr && deps_.removal_log != nullptr) {
      for (const ChunkId& id : deps_.removal_log->Left()) {
        // Nobody's waits for the start after which its tenant is back.
        if (!HasPool(owners_.OwnerOf(id.ns))) continue;
        remote_->removals.Add(id, RemoteRemovals::Why::kDeleted);
      }
    }
  }
  return disk_.joiner.JoinAtStart();
}

void Core::Unpin(ChunkSlot slot, bool lent) {
  Section section(&chunks_);
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!lent || pool(chunk).lent_blocks >= chunk.blocks());
  if (lent) pool(chunk).lent_blocks -= chunk.blocks();
  chunks_.Unpin(slot);
}

// ---- ChunkHooks

void Core::Verify(ChunkSlot slot) { filler_.Verify(slot); }

void Core::OnDetached(Chunk& chunk, ChunkSlot slot) { disk_.tiers.OnDetached(chunk, slot); }

void Core::LeaveG3(Chunk& chunk, ChunkSlot slot) {
  disk_.records.Remove(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
}

void Core::OnHomeless(ChunkSlot slot) { disk_.records.Return(slot); }

void Core::OnChanged(Chunk& chunk) { events_.NoteTiers(chunk); }

void Core::OnGone(const Chunk& chunk, ChunkSlot slot) {
  if (!chunk.detached) disk_.records.Forget(chunk.id);
  disk_.tiers.durable_waiters.Fail(slot, absl::NotFoundError("the chunk was evicted or deleted"));
  if (remote_ != nullptr) remote_->EndWait(slot);
}

// ---- what is due

bool Core::Tick() {
  Section section(&chunks_, Section::Kind::kMaintenance);
  const MonotonicTime now = deps_.clock->Now();
  const auto passed = std::min(now - last_tick_.value_or(now), kMostOfATick);
  last_tick_ = now;
  disk_.Tick(section, passed);
  if (remote_ != nullptr) {
    beyond_->Tick();
    recaller_->Tick();
  }
  sweeper_.Tick(section);
  disk_.writes.WriteForWaiters(section);
  scrubber_.Pay(now);
  scrub_reader_.Next(section);
  const bool at_rest = IsAtRest();
  chunks_.SetAtRest(at_rest);
  return at_rest;
}

bool Core::IsAtRest() const {
  if (chunks_.draining || scrubber_.on() || !sweeper_.at_rest() || !disk_.at_rest()) return false;
  return remote_ == nullptr || remote_->at_rest();
}

// All that waits is written, whatever the budget: whoever stops keeps it in G3. What could not be
// written beyond the node is offered there once more.
void Core::BeginDrain(bool write_remote) {
  Section section(&chunks_);
  chunks_.draining = true;
  if (remote_ != nullptr) {
    recaller_->BeginDrain();
    beyond_->BeginDrain(section, write_remote);
  }
  disk_.writes.DrainUnbacked(section);
}

void Core::WhenDeleted(bool durable, StatusCallback done) {
  Section section(&chunks_);
  if (beyond_ == nullptr) return disk_.committer.WhenRemoved(durable, std::move(done));
  const auto both = std::make_shared<Gathering>(2, std::move(done));
  const auto end = [both](const absl::Status& status) { both->End(status); };
  disk_.committer.WhenRemoved(durable, end);
  beyond_->WhenNoted(durable, end);
}

}  // namespace kvkeep::store_internal
