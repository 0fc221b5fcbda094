// Clear, snapshot, and the walk that checks every invariant.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

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

uint64_t Core::Clear(const std::optional<NamespaceDigest>& ns) {
  uint64_t cleared = 0;
  {
    Section section(&chunks_);
    uint64_t moves = 0;
    do {  // again when a chunk changed its slot meanwhile: it may have been passed by
      moves = chunks_.moves;
      disk_.tiers.NoteMissed(ns);
      for (uint32_t i = 0; i < table_.slot_end(); ++i) {
        section.YieldIfSpent();
        Count(work::kLook);
        const Chunk& chunk = table_.at(ChunkSlot(i));
        if (!chunk.live || chunk.detached || (ns.has_value() && chunk.id.ns != *ns)) continue;
        disk_.records.Detach(ChunkSlot(i));
        ++cleared;
        ++counters_.deleted_chunks;
      }
    } while (moves != chunks_.moves);
  }
  if (!ns.has_value()) reuse_.Clear(deps_.clock->Now());
  return cleared;
}

StoreSnapshot Core::Snapshot() {
  StoreSnapshot snapshot;
  std::vector<std::shared_ptr<const SessionInfo>> infos;  // of the sessions: strings to be copied
  // Without the lock, as it may be much; more sessions than now are rare.
  const uint64_t sessions = options().max_sessions;
  snapshot.sessions.reserve(sessions);
  infos.reserve(sessions);
  {
    Section section(&chunks_);
    SnapshotTiers(snapshot);
    SnapshotSessions(section, snapshot, infos);
  }
  for (size_t i = 0; i < infos.size(); ++i) snapshot.sessions[i].info = *infos[i];
  return snapshot;
}

void Core::SnapshotTiers(StoreSnapshot& snapshot) {
  snapshot.counters = counters_;
  snapshot.lock_hold = chunks_.lock_hold().counts();
  snapshot.lock_wait = chunks_.lock_wait().counts();
  snapshot.write_back_age = disk_.committer.write_back_age().counts();
  snapshot.life = life_.snapshot();
  snapshot.namespaces = meters_.snapshot();
  snapshot.draining = chunks_.draining;
  snapshot.dirty_chunks = disk_.tiers.write_backs.dirty();
  if (remote_ != nullptr) {
    snapshot.remote = remote_->counters;
    snapshot.remote->given_up_removals = remote_->removals.given_up();
    snapshot.remote_writes_left = remote_->writes_left();
    snapshot.remote_removals_left = remote_->removals.left();
  }
  snapshot.scrub = {.asked_for = scrubber_.round_asked(),
                    .looked_at = scrubber_.looked_at(),
                    .of = table_.slot_end()};
  snapshot.cipher_buffer_bytes = cipher_buffers_->bytes_out();
  for (const auto& own : pools_) {
    const ExtentAllocator::Stats& space = own->stats();
    const TenantId tenant(static_cast<uint32_t>(snapshot.tenants.size()));
    const TierSnapshot g2 = {.capacity_bytes = own->capacity_blocks() * kBlockBytes,
                             .used_bytes = own->used_blocks() * kBlockBytes,
                             .chunks = own->chunks,
                             .to_come_bytes = own->to_come_blocks() * kBlockBytes,
                             .leased_bytes = own->pinned_blocks * kBlockBytes,
                             .reserved_bytes = puts_.blocks_of(tenant) * kBlockBytes,
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
                                .g3_used_bytes = disk_.tiers.shares.held(tenant) * kBlockBytes,
                                .g3_quota_bytes = disk_.tiers.shares.quota(tenant) * kBlockBytes,
                                .g3_share_bytes = disk_.tiers.shares.share(tenant) * kBlockBytes,
                                .chunks = slot_shares_.held(tenant),
                                .keys_per_second = sessions_.rates(tenant).keys_per_second(),
                                .bytes_per_second = sessions_.rates(tenant).bytes_per_second(),
                                .counters = tenant_counters_[tenant.value()]});
  }
  const MonotonicTime now = deps_.clock->Now();
  snapshot.oldest_dirty_age = disk_.tiers.write_backs.OldestAge(now);
  for (const auto& tier : disk_.tiers.all()) {
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

void Core::SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                            std::vector<std::shared_ptr<const SessionInfo>>& infos) {
  const MonotonicTime now = deps_.clock->Now();
  std::optional<SessionToken> last;
  while (const Session* session = sessions_.Next(last)) {
    Count(work::kSession);
    infos.push_back(session->info);
    const LeaseHolder& holder = *leases_.of(session->token);
    snapshot.sessions.push_back({.leases = holder.leases().size(),
                                 .leased_bytes = holder.leased_bytes(),
                                 .reserved_bytes = puts_.blocks_of(session->token) * kBlockBytes,
                                 .age = now - session->opened});
    last = session->token;
    section.YieldIfSpent();
  }
}

// Marked is every image that may be found, and nothing else.
void Core::CheckMarks() {
  if (marks_.size() == 0) return;
  uint64_t images = 0;
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.live || chunk.detached || !chunk.in_g2()) continue;
    KVKEEP_CHECK(marks_.at(chunk.g2.first_block()) != 0);
    ++images;
  }
  KVKEEP_CHECK(marks_.CountSet() == images);
}

// The accounts of tenants are right, and no quota is passed.
void Core::CheckShares() {
  sessions_.CheckInvariants();
  for (const Session* session = sessions_.Next(std::nullopt); session != nullptr;
       session = sessions_.Next(session->token)) {
    KVKEEP_CHECK(leases_.of(session->token)->tenant == session->tenant());
  }
  leases_.CheckInvariants();
  puts_.CheckInvariants();
  std::vector<uint64_t> chunks(tenant_counters_.size()), blocks(tenant_counters_.size());
  std::vector<std::vector<uint64_t>> in_policy(disk_.tiers.size(), chunks);  // by device, tenant
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.live) continue;
    const uint32_t tenant = chunk.tenant.value();
    KVKEEP_CHECK(chunk.tenant == owners_.OwnerOf(chunk.id.ns));
    ++chunks[tenant];
    if (!chunk.g3.empty()) blocks[tenant] += chunk.blocks();
    if (chunk.in_g3_policy) ++in_policy[chunk.device][tenant];
  }
  for (const auto& [at, replaced] : disk_.records.kept().all()) {
    blocks[owners_.OwnerOf(at.id.ns).value()] += replaced.blocks();
  }
  for (TenantId tenant(0); tenant.value() < chunks.size(); ++tenant) {
    KVKEEP_CHECK(slot_shares_.held(tenant) == chunks[tenant.value()]);
    KVKEEP_CHECK(disk_.tiers.shares.held(tenant) == blocks[tenant.value()]);
    KVKEEP_CHECK(disk_.tiers.over_quota || disk_.tiers.shares.FitsQuota(tenant, 0));
    for (size_t d = 0; d < disk_.tiers.size(); ++d) {
      KVKEEP_CHECK(disk_.tiers.at(d).policy(tenant).size() == in_policy[d][tenant.value()]);
    }
  }
}

// What events have told is what lookups find.
void Core::CheckTold() {
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.live) continue;
    events_.Check(chunk);
  }
  for (uint16_t d = 0; d < disk_.tiers.size(); ++d) events_.Check(d, disk_.tiers.at(d).readable());
}

void Core::CheckInvariants() {
  Section section(&chunks_, Section::Kind::kNotMeasured);
  CheckMarks();
  CheckTold();
  CheckShares();
  KVKEEP_CHECK(remote_ == nullptr || recaller_->waiting_lookups() <= remote_->recalls.all());
  struct Seen {
    uint64_t blocks = 0, resident = 0, evictable = 0, pinned = 0, dirty = 0;
    uint64_t in_policy = 0;
  };
  std::vector<Seen> seen(pools_.size() + 1);  // nobody is last
  uint64_t live = 0, dirty_chunks = 0, reading = 0, writing = 0, sending = 0;
  std::vector<uint64_t> g3_blocks(disk_.tiers.size(), 0), stored(disk_.tiers.size(), 0);
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const ChunkSlot slot(i);
    const Chunk& chunk = table_.at(slot);
    if (!chunk.live) continue;
    ++live;
    KVKEEP_CHECK(chunk.detached == (table_.Find(chunk.id) != slot));
    KVKEEP_CHECK(chunk.has_g2_space() == !chunk.g2.empty());
    KVKEEP_CHECK(chunk.pins == 0 || chunk.has_g2_space());
    KVKEEP_CHECK(chunk.has_g2_space() || chunk.g3_state != G3State::kAbsent);
    KVKEEP_CHECK(!chunk.dirty() || chunk.resident());
    KVKEEP_CHECK(chunk.being_read() == (filler_.Find(slot) != nullptr));
    KVKEEP_CHECK(!chunk.sending || remote_->writes.IsWriting(chunk.id));
    sending += chunk.sending;
    if (chunk.has_g2_space()) KVKEEP_CHECK(TotalBlocks(chunk.g2) == chunk.shape.blocks());
    const bool g3_space = chunk.g3_state >= G3State::kWriting;
    KVKEEP_CHECK(g3_space == !chunk.g3.empty());
    if (g3_space) g3_blocks[chunk.device] += chunk.blocks();
    for (const Extent& extent : chunk.g2.list()) KVKEEP_CHECK(pool(chunk).Owns(extent.first));
    Seen& own = seen[chunk.tenant.value()];
    if (chunk.has_g2_space()) own.blocks += chunk.blocks();
    own.resident += chunk.in_g2();
    own.evictable += chunk.evictable_from_g2() ? chunk.blocks() : 0;
    own.pinned += chunk.pins > 0 ? chunk.blocks() : 0;
    own.dirty += chunk.dirty() ? chunk.blocks() : 0;
    own.in_policy += chunk.in_g2_policy;
    dirty_chunks += chunk.dirty();
    reading += chunk.being_read();
    writing += chunk.g3_state == G3State::kWriting;
    if (chunk.g3_state == G3State::kStored) ++stored[chunk.device];
  }
  KVKEEP_CHECK(live == table_.size() && live <= options_.max_chunks);
  KVKEEP_CHECK(dirty_chunks == disk_.tiers.write_backs.dirty());
  for (size_t t = 0; t < pools_.size(); ++t) {
    const G2Pool& own = *pools_[t];
    own.CheckInvariants();
    KVKEEP_CHECK(disk_.tiers.over_capacity || !own.over_capacity());
    const uint64_t reserved = puts_.blocks_of(TenantId(static_cast<uint32_t>(t)));
    KVKEEP_CHECK(own.used_blocks() - own.withheld_blocks() == seen[t].blocks + reserved);
    KVKEEP_CHECK(own.chunks == seen[t].resident && own.evictable_blocks == seen[t].evictable);
    KVKEEP_CHECK(own.pinned_blocks == seen[t].pinned && own.dirty_blocks == seen[t].dirty);
    KVKEEP_CHECK(own.policy->size() == seen[t].in_policy);
  }
  KVKEEP_CHECK(reading == filler_.size() && writing == disk_.tiers.write_backs.writing());
  KVKEEP_CHECK(sending == (remote_ == nullptr ? 0 : remote_->writes.writing()));
  disk_.CheckInvariants(std::move(g3_blocks), stored);
}

}  // namespace store_internal
}  // namespace kvkeep
