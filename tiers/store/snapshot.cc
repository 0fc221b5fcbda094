// Makes the snapshot of a store.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tiers/base/check.h"
#include "tiers/store/store_parts.h"

namespace kvkeep {

void TierSnapshot::Add(const TierSnapshot& other) {
  capacity_bytes += other.capacity_bytes;
  used_bytes += other.used_bytes;
  chunks += other.chunks;
  to_come_bytes += other.to_come_bytes;
  leased_bytes += other.leased_bytes;
  reserved_bytes += other.reserved_bytes;
  dirty_bytes += other.dirty_bytes;
  unbacked_chunks += other.unbacked_chunks;
  unbacked_bytes += other.unbacked_bytes;
  waiting_chunks += other.waiting_chunks;
  waiting_bytes += other.waiting_bytes;
  allocations += other.allocations;
  extents_allocated += other.extents_allocated;
}

namespace store_internal {
namespace {

DeviceState StateOf(const DeviceTier& tier) {
  if (tier.presence == DeviceTier::Presence::kJoining) return DeviceState::kJoining;
  const bool away = tier.health.stuck() || !tier.here();
  return away ? DeviceState::kOffline : tier.health.state();
}

std::string MessageOf(const DeviceTier& tier) {
  if (tier.presence == DeviceTier::Presence::kJoining) {
    return absl::StrCat("its index is read: ", tier.joined_records, " records so far");
  }
  if (tier.presence == DeviceTier::Presence::kLeaving) return "it is let go of";
  return tier.health.message();
}

}  // namespace

StoreSnapshot StoreParts::Snapshot() {
  StoreSnapshot snapshot;
  std::vector<std::shared_ptr<const SessionInfo>> infos;  // the sessions' strings, copied later
  // Reserves memory without the lock, as it may be much. More sessions than now are rare.
  const uint64_t most = limits.options().max_sessions;
  snapshot.sessions.reserve(most);
  infos.reserve(most);
  {
    Section section(&chunks);
    SnapshotTiers(snapshot);
    snapshot.counters.learning_skipped = learning.skipped();
    snapshot.offers = peer_offers.counters();
    SnapshotSessions(section, snapshot, infos);
  }
  for (size_t i = 0; i < infos.size(); ++i) snapshot.sessions[i].info = *infos[i];
  return snapshot;
}

void StoreParts::SnapshotTiers(StoreSnapshot& snapshot) {
  snapshot.counters = chunks.counters;
  snapshot.lock_hold = chunks.lock_hold().counts();
  snapshot.lock_wait = chunks.lock_wait().counts();
  snapshot.write_back_age = disk.committer.write_back_age().counts();
  snapshot.life = chunks.life.snapshot();
  snapshot.namespaces = served.meters.snapshot();
  snapshot.draining = chunks.draining;
  snapshot.dirty_chunks = disk.tiers.write_backs.dirty();
  if (beyond != nullptr) {
    snapshot.remote = beyond->tier.counters;
    snapshot.remote->given_up_removals = beyond->tier.removals.given_up();
    snapshot.remote_writes_left = beyond->tier.writes_left();
    snapshot.remote_removals_left = beyond->tier.removals.left();
  }
  snapshot.scrub = {.asked_for = scrubber.round_asked(),
                    .looked_at = scrubber.looked_at(),
                    .of = chunks.table.slot_end()};
  snapshot.cipher_buffer_bytes = buffers->bytes_out();
  for (const auto& own : chunks.pools) {
    const ExtentAllocator::Stats& space = own->stats();
    const TenantId tenant(static_cast<uint32_t>(snapshot.tenants.size()));
    const TierSnapshot g2 = {.capacity_bytes = own->capacity_blocks() * kBlockBytes,
                             .used_bytes = own->used_blocks() * kBlockBytes,
                             .chunks = own->chunks,
                             .to_come_bytes = own->to_come_blocks() * kBlockBytes,
                             .leased_bytes = own->pinned_blocks * kBlockBytes,
                             .reserved_bytes = puts.pending.blocks_of(tenant) * kBlockBytes,
                             .dirty_bytes = own->dirty_blocks * kBlockBytes,
                             .unbacked_chunks = own->unbacked_chunks,
                             .unbacked_bytes = own->unbacked_blocks * kBlockBytes,
                             .waiting_chunks = own->unbacked.chunks(),
                             .waiting_bytes = own->unbacked.blocks() * kBlockBytes,
                             .allocations = space.allocations,
                             .extents_allocated = space.extents_allocated};
    snapshot.g2.Add(g2);
    snapshot.tenants.push_back({.name = own->tenant(),
                                .g2 = g2,
                                .g3_used_bytes = disk.tiers.shares.held(tenant) * kBlockBytes,
                                .g3_quota_bytes = disk.tiers.shares.quota(tenant) * kBlockBytes,
                                .g3_share_bytes = disk.tiers.shares.share(tenant) * kBlockBytes,
                                .chunks = chunks.slot_shares.held(tenant),
                                .keys_per_second = sessions.table.rates(tenant).keys_per_second(),
                                .bytes_per_second = sessions.table.rates(tenant).bytes_per_second(),
                                .counters = chunks.tenant_counters[tenant.value()]});
  }
  const MonotonicTime now = deps.clock->Now();
  snapshot.oldest_dirty_age = disk.tiers.write_backs.OldestAge(now);
  for (const auto& tier : disk.tiers.all()) {
    const uint64_t device_used = tier->used_blocks() * kBlockBytes;
    const uint64_t capacity = std::max(tier->capacity_bytes, device_used);
    snapshot.devices.push_back({.state = StateOf(*tier),
                                .message = MessageOf(*tier),
                                .capacity_bytes = capacity,
                                .used_bytes = device_used,
                                .chunks = tier->chunks,
                                .queued_writes = tier->writes.waiting(),
                                .joined_records = tier->joined_records});
    snapshot.g3.capacity_bytes += capacity;
    snapshot.g3.used_bytes += device_used;
    snapshot.g3.chunks += tier->chunks;
    if (NvmeDevice* const nvme = tier->device; nvme != nullptr) {
      snapshot.devices.back().path = nvme->dir();
      snapshot.devices.back().built_bytes = nvme->capacity_bytes();
    }
    if (tier->allocator == nullptr) continue;
    snapshot.g3.allocations += tier->allocator->stats().allocations;
    snapshot.g3.extents_allocated += tier->allocator->stats().extents_allocated;
  }
}

void StoreParts::SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                                  std::vector<std::shared_ptr<const SessionInfo>>& infos) {
  const MonotonicTime now = deps.clock->Now();
  std::optional<SessionToken> last;
  while (const Session* session = sessions.table.Next(last)) {
    chunks.Count(work::kSession);
    infos.push_back(session->info);
    const LeaseHolder& holder = *sessions.leases.of(session->token);
    snapshot.sessions.push_back(
        {.leases = holder.leases().size(),
         .leased_bytes = holder.leased_bytes(),
         .reserved_bytes = puts.pending.blocks_of(session->token) * kBlockBytes,
         .age = now - session->opened});
    last = session->token;
    section.YieldIfSpent();
  }
}

}  // namespace store_internal
}  // namespace kvkeep
