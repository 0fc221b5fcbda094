// Walks a store and checks its invariants.
#include <algorithm>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/store/section.h"
#include "tiers/store/store_parts.h"

namespace kvkeep::store_internal {

// Checks that exactly the images that a restart may find are marked.
void StoreParts::CheckMarks() const {
  if (chunks.marks.size() == 0) return;
  uint64_t images = 0;
  for (uint32_t i = 0; i < chunks.table.slot_end(); ++i) {
    const Chunk& chunk = chunks.table.at(ChunkSlot(i));
    if (!chunk.live || chunk.detached || !chunk.in_g2()) continue;
    KVKEEP_CHECK(chunks.marks.at(chunk.g2.first_block()) != 0);
    ++images;
  }
  KVKEEP_CHECK(chunks.marks.CountSet() == images);
}

// Checks the accounts of tenants, and that no quota is exceeded.
void StoreParts::CheckShares() {
  sessions.table.CheckInvariants();
  for (const Session* session = sessions.table.Next(std::nullopt); session != nullptr;
       session = sessions.table.Next(session->token)) {
    KVKEEP_CHECK(sessions.leases.of(session->token)->tenant == session->tenant());
  }
  sessions.leases.CheckInvariants();
  puts.pending.CheckInvariants();
  std::vector<uint64_t> slots(chunks.tenant_counters.size()), blocks(slots.size());
  std::vector<std::vector<uint64_t>> in_policy(disk.tiers.size(), slots);  // by device, tenant
  for (uint32_t i = 0; i < chunks.table.slot_end(); ++i) {
    const Chunk& chunk = chunks.table.at(ChunkSlot(i));
    if (!chunk.live) continue;
    const uint32_t tenant = chunk.tenant.value();
    KVKEEP_CHECK(chunk.tenant == owners.OwnerOf(chunk.id.ns));
    ++slots[tenant];
    if (!chunk.g3.empty()) blocks[tenant] += chunk.blocks();
    if (chunk.in_g3_policy) ++in_policy[chunk.device][tenant];
  }
  for (const auto& [at, replaced] : disk.records.kept().all()) {
    blocks[owners.OwnerOf(at.id.ns).value()] += replaced.blocks();
  }
  for (TenantId tenant(0); tenant.value() < slots.size(); ++tenant) {
    KVKEEP_CHECK(chunks.slot_shares.held(tenant) == slots[tenant.value()]);
    KVKEEP_CHECK(disk.tiers.shares.held(tenant) == blocks[tenant.value()]);
    KVKEEP_CHECK(disk.tiers.over_quota || disk.tiers.shares.FitsQuota(tenant, 0));
    for (size_t d = 0; d < disk.tiers.size(); ++d) {
      KVKEEP_CHECK(disk.tiers.at(d).policy(tenant).size() == in_policy[d][tenant.value()]);
    }
  }
}

// Checks that events have told what lookups find.
void StoreParts::CheckTold() const {
  for (uint32_t i = 0; i < chunks.table.slot_end(); ++i) {
    const Chunk& chunk = chunks.table.at(ChunkSlot(i));
    if (!chunk.live) continue;
    events.Check(chunk);
  }
  for (uint16_t d = 0; d < disk.tiers.size(); ++d) events.Check(d, disk.tiers.at(d).readable());
}

void StoreParts::CheckInvariants() {
  Section section(&chunks, Section::Kind::kNotMeasured);
  CheckMarks();
  CheckTold();
  CheckShares();
  KVKEEP_CHECK(beyond == nullptr ||
               beyond->recaller.waiting_lookups() <= beyond->tier.recalls.all());
  struct Seen {
    uint64_t blocks = 0, resident = 0, evictable = 0, pinned = 0, dirty = 0;
    uint64_t in_policy = 0;
  };
  std::vector<Seen> seen(chunks.pools.size() + 1);  // nobody is last
  uint64_t live = 0, dirty_chunks = 0, reading = 0, writing = 0, sending = 0;
  std::vector<uint64_t> g3_blocks(disk.tiers.size(), 0), stored(disk.tiers.size(), 0);
  for (uint32_t i = 0; i < chunks.table.slot_end(); ++i) {
    const ChunkSlot slot(i);
    const Chunk& chunk = chunks.table.at(slot);
    if (!chunk.live) continue;
    ++live;
    KVKEEP_CHECK(chunk.detached == (chunks.table.Find(chunk.id) != slot));
    KVKEEP_CHECK(chunk.has_g2_space() == !chunk.g2.empty());
    KVKEEP_CHECK(chunk.pins == 0 || chunk.has_g2_space());
    KVKEEP_CHECK(chunk.has_g2_space() || chunk.g3_state != G3State::kAbsent);
    KVKEEP_CHECK(!chunk.dirty() || chunk.resident());
    KVKEEP_CHECK(chunk.being_read() == (filler.Find(slot) != nullptr));
    KVKEEP_CHECK(!chunk.sending || beyond->tier.writes.IsWriting(chunk.id));
    sending += chunk.sending;
    if (chunk.has_g2_space()) KVKEEP_CHECK(TotalBlocks(chunk.g2) == chunk.shape.blocks());
    const bool g3_space = chunk.g3_state >= G3State::kWriting;
    KVKEEP_CHECK(g3_space == !chunk.g3.empty());
    if (g3_space) g3_blocks[chunk.device] += chunk.blocks();
    for (const Extent& extent : chunk.g2.list()) {
      KVKEEP_CHECK(chunks.pool(chunk).Owns(extent.first));
    }
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
  KVKEEP_CHECK(live == chunks.table.size() && live <= options.max_chunks);
  KVKEEP_CHECK(dirty_chunks == disk.tiers.write_backs.dirty());
  for (size_t t = 0; t < chunks.pools.size(); ++t) {
    const G2Pool& own = *chunks.pools[t];
    own.CheckInvariants();
    KVKEEP_CHECK(disk.tiers.over_capacity || !own.over_capacity());
    const uint64_t reserved = puts.pending.blocks_of(TenantId(static_cast<uint32_t>(t)));
    KVKEEP_CHECK(own.used_blocks() - own.withheld_blocks() == seen[t].blocks + reserved);
    KVKEEP_CHECK(own.chunks == seen[t].resident && own.evictable_blocks == seen[t].evictable);
    KVKEEP_CHECK(own.pinned_blocks == seen[t].pinned && own.dirty_blocks == seen[t].dirty);
    KVKEEP_CHECK(own.policy->size() == seen[t].in_policy);
    KVKEEP_CHECK(own.places.size() == seen[t].in_policy);
  }
  KVKEEP_CHECK(reading == filler.size() && writing == disk.tiers.write_backs.writing());
  KVKEEP_CHECK(sending == (beyond == nullptr ? 0 : beyond->tier.writes.writing()));
  disk.CheckInvariants(std::move(g3_blocks), stored);
}

}  // namespace kvkeep::store_internal
