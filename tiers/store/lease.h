// Leases of a session, and what they take of what its tenant's may hold.
// Plain parts of the core's state; the core's lock protects them.
#pragma once

#include <absl/container/btree_map.h>

#include <cstdint>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

// Who leases: one session. Outlives it where a lease is still being granted or ended.
//
// Holds what its own leases' entries pin: a chunk of its tenant once, however many of them do and
// whoever else pins it too; one of another tenant each time, as that is what it costs its tenant.
class Lessee {
 public:
  explicit Lessee(TenantId tenant) : tenant(tenant) {}

  uint64_t blocks() const { return blocks_; }
  // The chunks of its own tenant, with how many entries hold each.
  const auto& own() const { return own_; }
  bool Holds(ChunkSlot slot) const { return own_.contains(slot); }

  // One entry more, or less. `owner`: the chunk's.
  void Add(ChunkSlot slot, TenantId owner, uint64_t blocks) {
    if (owner != tenant || ++own_[slot] == 1) blocks_ += blocks;
  }
  void Remove(ChunkSlot slot, TenantId owner, uint64_t blocks) {
    if (owner == tenant) {
      const auto found = own_.find(slot);
      KVKEEP_CHECK(found != own_.end());
      if (--found->second > 0) return;
      own_.erase(found);
    }
    blocks_ -= blocks;
  }

  const TenantId tenant;
  bool asked = false;  // for a lease, once at least

 private:
  uint64_t blocks_ = 0;
  // A tree: one that grows moves a node, and takes memory for one of every few chunks.
  absl::btree_map<ChunkSlot, uint32_t> own_;
};

struct Lease {
  struct Entry {
    ChunkSlot slot;
    uint32_t key_index;  // within the lookup
    uint32_t chunk;      // key index * parts + part index
  };
  std::vector<Entry> entries;  // in lookup order
  uint64_t client_request_id = 0;
  uint32_t keys = 0;  // leading keys covered
  uint64_t bytes = 0;
  bool paid = false;  // its bytes were charged when it was granted: reads of it are free
};

}  // namespace kvkeep::store_internal
