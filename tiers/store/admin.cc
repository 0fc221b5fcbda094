// Clear, drain, snapshot, and the walk that checks every invariant.
#include <numeric>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint32_t kClearSlice = 1024;  // slots looked at under one hold of the lock

}  // namespace

uint64_t Core::Clear(const std::optional<NamespaceDigest>& ns) {
  uint64_t cleared = 0;
  for (uint32_t begin = 0;; begin += kClearSlice) {
    Section section(this);
    const uint32_t end = std::min(begin + kClearSlice, table_.slot_end());
    if (begin >= end) return cleared;
    for (uint32_t i = begin; i < end; ++i) {
      const Chunk& chunk = table_.at(ChunkSlot(i));
      if (!chunk.live || chunk.detached || (ns.has_value() && chunk.id.ns != *ns)) continue;
      DetachChunk(ChunkSlot(i));
      ++cleared;
      ++counters_.deleted_chunks;
    }
  }
}

void Core::BeginDrain() {
  Section section(this);
  draining_ = true;
}

StoreSnapshot Core::Snapshot() {
  StoreSnapshot snapshot;
  Section section(this);
  snapshot.counters = counters_;
  snapshot.draining = draining_;
  snapshot.dirty_chunks = dirty_chunks_;
  const ExtentAllocator::Stats& g2 = g2_allocator_.stats();
  const uint64_t used = g2_allocator_.capacity().value() - g2_allocator_.free_blocks().value();
  snapshot.g2 = {.capacity_bytes = g2_allocator_.capacity().value() * kBlockBytes,
                 .used_bytes = used * kBlockBytes,
                 .chunks = g2_chunks_,
                 .leased_bytes = pinned_blocks_ * kBlockBytes,
                 .reserved_bytes = reserved_blocks_ * kBlockBytes,
                 .dirty_bytes = dirty_blocks_ * kBlockBytes,
                 .allocations = g2.allocations,
                 .extents_allocated = g2.extents_allocated};
  for (const auto& tier : devices_) {
    const ExtentAllocator& space = *tier->allocator;
    NvmeDevice& nvme = *tier->deps.device;
    const uint64_t device_used =
        (space.capacity().value() - space.free_blocks().value()) * kBlockBytes;
    snapshot.devices.push_back({.path = nvme.dir(),
                                .state = tier->state,
                                .message = tier->message,
                                .capacity_bytes = nvme.capacity_bytes(),
                                .used_bytes = device_used,
                                .chunks = tier->chunks,
                                .queued_writes = tier->write_queue.size()});
    snapshot.g3.capacity_bytes += nvme.capacity_bytes();
    snapshot.g3.used_bytes += device_used;
    snapshot.g3.chunks += tier->chunks;
    snapshot.g3.allocations += space.stats().allocations;
    snapshot.g3.extents_allocated += space.stats().extents_allocated;
  }
  for (const auto& [token, session] : sessions_) {
    snapshot.sessions.push_back({.info = session->info,
                                 .leases = session->leases.size(),
                                 .leased_bytes = session->leased_bytes,
                                 .reserved_bytes = session->reserved_blocks * kBlockBytes,
                                 .age = deps_.clock->Now() - session->opened});
  }
  return snapshot;
}

void Core::CheckInvariants() {
  Section section(this);
  g2_allocator_.CheckInvariants();
  uint64_t live = 0, g2_blocks = 0, resident = 0, evictable = 0, pinned = 0, dirty = 0;
  uint64_t dirty_chunks = 0, in_g2_policy = 0, pins = 0, reading = 0, writing = 0;
  std::vector<uint64_t> g3_blocks(devices_.size(), 0), in_g3_policy(devices_.size(), 0);
  std::vector<uint64_t> stored(devices_.size(), 0);
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const ChunkSlot slot(i);
    const Chunk& chunk = table_.at(slot);
    if (!chunk.live) continue;
    ++live;
    KVKEEP_CHECK(chunk.detached == (table_.Find(chunk.id) != slot));
    KVKEEP_CHECK(chunk.has_g2_space() == !chunk.g2.empty());
    KVKEEP_CHECK(chunk.pins == 0 || chunk.has_g2_space());
    KVKEEP_CHECK(chunk.has_g2_space() || chunk.g3_state != G3State::kAbsent);
    KVKEEP_CHECK(!chunk.dirty() || chunk.g2_state == G2State::kResident);
    KVKEEP_CHECK((chunk.g2_state == G2State::kReading) == promotions_.contains(slot));
    if (chunk.has_g2_space()) KVKEEP_CHECK(TotalBlocks(chunk.g2) == chunk.shape.blocks());
    const bool g3_space = chunk.g3_state >= G3State::kWriting;
    KVKEEP_CHECK(g3_space == !chunk.g3.empty());
    if (g3_space) g3_blocks[chunk.device] += chunk.blocks();
    if (chunk.has_g2_space()) g2_blocks += chunk.blocks();
    resident += chunk.g2_state == G2State::kResident;
    evictable += EvictableFromG2(chunk) ? chunk.blocks() : 0;
    pinned += chunk.pins > 0 ? chunk.blocks() : 0;
    pins += chunk.pins;
    dirty += chunk.dirty() ? chunk.blocks() : 0;
    dirty_chunks += chunk.dirty();
    reading += chunk.g2_state == G2State::kReading;
    writing += chunk.g3_state == G3State::kWriting;
    in_g2_policy += chunk.in_g2_policy;
    if (chunk.in_g3_policy) ++in_g3_policy[chunk.device];
    if (chunk.g3_state == G3State::kStored) ++stored[chunk.device];
  }
  uint64_t put_blocks = 0, leased = 0;
  for (const auto& [id, put] : puts_) put_blocks += put.blocks;
  for (const auto& [token, session] : sessions_) {
    for (const auto& [id, lease] : session->leases) leased += lease.entries.size();
  }
  const uint64_t used = g2_allocator_.capacity().value() - g2_allocator_.free_blocks().value();
  KVKEEP_CHECK(live == table_.size() && live <= options_.max_chunks);
  KVKEEP_CHECK(used == g2_blocks + put_blocks);
  KVKEEP_CHECK(put_blocks == reserved_blocks_);
  KVKEEP_CHECK(resident == g2_chunks_ && evictable == evictable_blocks_);
  KVKEEP_CHECK(pinned == pinned_blocks_ && pins >= leased);
  KVKEEP_CHECK(dirty == dirty_blocks_ && dirty_chunks == dirty_chunks_);
  KVKEEP_CHECK(in_g2_policy == g2_policy_->size());
  KVKEEP_CHECK(reading == promotions_.size() && writing == write_backs_.size());
  for (size_t d = 0; d < devices_.size(); ++d) {
    const DeviceTier& tier = *devices_[d];
    tier.allocator->CheckInvariants();
    const ExtentList labels = tier.deps.device->ReservedExtents();
    const uint64_t taken =
        tier.allocator->capacity().value() - tier.allocator->free_blocks().value();
    KVKEEP_CHECK(taken == g3_blocks[d] + tier.freeing_blocks + TotalBlocks(labels).value());
    KVKEEP_CHECK(in_g3_policy[d] == tier.policy->size() && stored[d] == tier.chunks);
  }
}

}  // namespace kvkeep::store_internal
