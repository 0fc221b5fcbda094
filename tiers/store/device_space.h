// DeviceSpace: space in G3. It chooses the device for a chunk, within the tenant's quota, and the
// tenant that gives up space for the chunk (shares.h).
//
// It evicts chunks and allocates extents, but frees none. Committer frees the extents of a removed
// record once its batch is in the index. If a later put has replaced the record, Committer frees
// them once that batch is synced or a sync has failed. A chunk that is being read is not evicted.
// README.md lists who else frees extents ("Which code may free an extent?").
//
// A tenant's quota and share limit what its chunks hold on all devices together. An evicted chunk
// counts no more, although its extents are not free yet.
//
// Owned by Disk (disk.h). The store's lock protects it.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/records.h"

namespace kvkeep::store_internal {

class DeviceSpace {
 public:
  // kMade: go on; there is room, or this step has nothing to do. kNone: this step cannot make room.
  // kLater: call again in another hold, as this one has done its share of work.
  enum class Room : uint8_t { kMade, kNone, kLater };

  // All are borrowed.
  DeviceSpace(const StoreOptions& options, Chunks* chunks, DeviceTiers* tiers, Records* records);

  // ---- for a chunk that is to be written
  // Returns the device that the chunk is to be written to; null: no device takes writes now.
  DeviceTier* ChooseDevice(const Chunk& chunk, ChunkSlot parent) STORE_LOCKED;
  // Evicts the tenant's own chunks, on this device first, until its quota has room for `blocks`
  // blocks. While a device joins it evicts nothing and returns kMade; Trimmer does it later.
  Room MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks) STORE_LOCKED;
  // Empties one part of the device for a chunk that is much larger than the chunks there. Evicting
  // scattered chunks would leave room for it in too many pieces. kLater: go on in another hold or,
  // if this one is not spent, once a batch of removals is committed. kNone: no part can be emptied
  // so far.
  Room EmptyWindow(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  // Evicts chunks until the device has room for this chunk and its reserve of free blocks. Returns
  // false if that has to go on in another hold. True promises no room: perhaps nothing more can be
  // evicted, or the chunk is larger than the device.
  bool EnsureReserve(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  // Allocates space for the chunk, next to its parent if possible. Returns false if there is none
  // now. Then it has evicted a chunk for the next attempt, if one can go and too little is being
  // removed already.
  bool Allocate(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) STORE_LOCKED;

  // ---- eviction
  // Evicts one chunk of the tenant's.
  Evicted EvictOne(DeviceTier& tier, TenantId from) STORE_LOCKED;
  // Evicts one chunk of a tenant above its quota. Returns false if it is not above it, or nothing
  // can be evicted; true: call again, as one was evicted or this hold is spent.
  bool EvictOverQuota(DeviceTier& tier, TenantId tenant) STORE_LOCKED;
  // Does the same for a device above its capacity.
  bool EvictOverCapacity(DeviceTier& tier) STORE_LOCKED;

  // ---- limits
  // Sets the capacity of each device, in bytes of its directory. Trimmer evicts the chunks above
  // it.
  void SetCapacities(std::vector<uint64_t> bytes) STORE_LOCKED;
  // Gives a device that has come its capacity.
  void Limit(DeviceTier& tier) STORE_LOCKED;
  // Computes anew what tenants share, once a device has come or gone or has another capacity.
  void Share() STORE_LOCKED;

 private:
  // Returns whether there is space for the chunk, or a tenant that would give some.
  bool HasRoom(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  void Evict(DeviceTier& tier, ChunkSlot slot) STORE_LOCKED;
  // Returns the tenant whose chunks are evicted for a window of `blocks` blocks for `taker`. None:
  // no tenant has that much to give.
  std::optional<TenantId> WindowDonor(DeviceTier& tier, TenantId taker, uint64_t blocks)
      STORE_LOCKED;
  bool BeginSearch(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  WindowSearch::Yield LookAt(const DeviceTier& tier, TenantId from, uint64_t granule) STORE_LOCKED;
  // Evicts the chunks of the window that may go. Returns false if that has to go on in another
  // hold.
  bool EmptyGranules(DeviceTier& tier, TenantId taker) STORE_LOCKED;
  // Evicts one chunk of the tenant that has to give up space (shares.h), so that `tenant` gets
  // `blocks`.
  Evicted EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  const uint64_t most_reserve_blocks_;
  std::vector<uint64_t> capacities_ STORE_GUARDED;  // by device, in bytes
};

}  // namespace kvkeep::store_internal
