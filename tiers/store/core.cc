// The store's parts put together, and what happens in other tiers when a chunk changes.
#include "tiers/store/core.h"

#include <algorithm>

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

std::unique_ptr<RemoteTier> RemoteOf(const StoreOptions& options, const StoreDeps& deps) {
  if (deps.remote == nullptr) return nullptr;
  const auto number = static_cast<uint16_t>(deps.devices.size());
  return std::make_unique<RemoteTier>(number, deps.remote, deps.removal_log, options);
}

}  // namespace

Core::Core(const StoreOptions& options, const StoreDeps& deps)
    : options_(ResolveLimits(options, deps)),
      deps_(deps),
      incarnation_(deps.random->NextU64()),
      owners_(options_.tenants),
      reuse_(TierBytes(options, deps), deps.clock->Now()),
      chunks_(options_, deps_, incarnation_, ClaimsOf(options_, false), &owners_, this),
      verifier_(deps.arena, deps.keys, deps.remote_keys),
      filler_(&chunks_, &verifier_, deps_, this),
      limits_(options_),
      g3_shares_(ClaimsOf(options_, true)),
      scrubber_(&table_, &hold_, &counters_),
      sessions_(options_, ClaimsOf(options_, false), incarnation_,
                {&owners_, deps_.clock, &counters_, &tenant_counters_}),
      leases_(options_.max_leases_per_session, &table_, &pools_, &counters_),
      puts_(options_.tenants.size()),
      meters_(options_.tenants.size()),
      events_(options_.events.log_entries, deps.devices.size(), &table_, &hold_, &counters_),
      remote_(RemoteOf(options_, deps)) {
  KVKEEP_CHECK(incarnations_.Add(incarnation_).has_value());
  std::vector<const DataKey*> keys_beyond;
  for (size_t number = 0; number < pools_.size(); ++number) {
    pools_[number]->limits = PoolLimits(options_, number);
    const std::string& name = options_.tenants[number].name;
    const auto key_of = [&name](const KeyRing* ring) {
      const DataKey* const key = ring == nullptr ? nullptr : ring->ForTenant(name);
      KVKEEP_CHECK(ring == nullptr || key != nullptr);  // Store::Create has looked
      return key;
    };
    write_keys_.push_back(key_of(deps.keys));
    keys_beyond.push_back(key_of(deps.remote_keys));
  }
  admissions_ = MakeAdmissions(options_);
  if (remote_ != nullptr) {
    beyond_ = std::make_unique<Beyond>(&chunks_, remote_.get(), deps_, std::move(keys_beyond),
                                       cipher_buffers_, options_.remote_write_bytes_per_second);
    recaller_ = std::make_unique<Recaller>(&chunks_, remote_.get(), &filler_,
                                           static_cast<Recaller::Host*>(this), deps_.clock);
    remote_->pump.SetWork([this] {
      chunks_.AssertHeld();
      filler_.PumpReads(*remote_);
      beyond_->Pump();
    });
  }
  scrubber_.SetRate(options_.scrub_bytes_per_second);
}

void Core::Unpin(ChunkSlot slot, bool lent) {
  Section section(&chunks_);
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!lent || pool(chunk).lent_blocks >= chunk.blocks());
  if (lent) pool(chunk).lent_blocks -= chunk.blocks();
  chunks_.Unpin(slot);
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

// ---- ChunkHooks

void Core::Verify(ChunkSlot slot) { filler_.Verify(slot); }

void Core::OnDetached(Chunk& chunk, ChunkSlot slot) {
  if (chunk.in_g3_policy) {
    g3_policy(chunk).OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
  }
  chunk.in_g3_policy = false;
  // What is being written already ends by itself.
  if (chunk.g3_state == G3State::kQueued) {
    devices_[chunk.device]->writes.Remove(chunk.g3_generation);
    SetG3State(chunk, G3State::kAbsent);
  }
  durable_waiters_.Fail(slot, absl::NotFoundError("the chunk was deleted"));
}

void Core::LeaveG3(Chunk& chunk, ChunkSlot slot) {
  RemoveFromG3(chunk, slot, EvictionPolicy::EraseReason::kRemoved);
}

void Core::OnHomeless(ChunkSlot slot) { ReturnReplaced(slot); }

void Core::OnChanged(Chunk& chunk) { events_.NoteTiers(chunk); }

void Core::OnGone(const Chunk& chunk, ChunkSlot slot) {
  if (!chunk.detached) ForgetReplaced(chunk.id);
  durable_waiters_.Fail(slot, absl::NotFoundError("the chunk was evicted or deleted"));
  if (remote_ != nullptr) remote_->EndWait(slot);
}

// ---- detaching

void Core::DetachChunk(ChunkSlot slot) {
  ForgetReplaced(table_.at(slot).id);
  // Where it cannot leave G3 at once its record goes before: a delete waits for no reader.
  const Chunk& chunk = table_.at(slot);
  const bool stays = chunk.g3_state == G3State::kStored && chunk.g3_reading;
  if (stays || chunk.g3_state == G3State::kCommitting) {
    RemoveRecord(*devices_[chunk.device], chunk.id);
  }
  chunks_.Detach(slot);
}

void Core::RemoveRecord(DeviceTier& tier, const ChunkId& id) {
  tier.commits.Remove({id, {}});
  if (!tier.commits.under_way()) PumpLater(tier);
}

}  // namespace kvkeep::store_internal
