// DeviceSpace: space in G3. It chooses the device for a chunk, within the tenant's quota, and the
// tenant that gives up space for the chunk (shares.h).
//
// It evicts chunks and allocates extents, but frees none. Committer frees the extents of a removed
// record once its batch is in the index. If a later put has replaced the record, Committer frees
// them once that batch is synced. A chunk that is being read is not evicted. README.md lists who
// else frees extents ("Which code may free an extent?").
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
  // kNone: there is no room, whatever goes now. kLater: this hold has done its share of work.
  enum class Room : uint8_t { kMade, kNone, kLater };

  // All are borrowed.
  DeviceSpace(const StoreOptions& options, Chunks* chunks, DeviceTiers* tiers, Records* records);

  // ---- for a chunk that is to be written
  // Null: no device takes writes now.
  DeviceTier* ChooseDevice(const Chunk& chunk, ChunkSlot parent) STORE_LOCKED;
  // Evicts the tenant's own chunks, on this device first, until its quota has room for so many
  // blocks.
  Room MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks) STORE_LOCKED;
  // Empties one part of the device for a chunk that is much larger than those that lie there, as
  // scattered ones would not make room for it in few pieces. kLater: in another hold or, if this
  // one is not spent, once a batch of removals is committed; kNone: no part can be emptied so far.
  Room EmptyWindow(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  // Evicts until the device has its reserve of free blocks beside this chunk. Returns false if that
  // has to go on in another hold.
  bool EnsureReserve(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  // Takes space for the chunk, next to its parent if that is possible. Returns false if there is
  // none now.
  bool Allocate(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) STORE_LOCKED;

  // ---- eviction
  // One chunk of the tenant's.
  Evicted EvictOne(DeviceTier& tier, TenantId from) STORE_LOCKED;
  // One chunk of a tenant above its quota. Returns false if it is not above, or nothing can go.
  bool EvictOverQuota(DeviceTier& tier, TenantId tenant) STORE_LOCKED;
  // One chunk of a device above its capacity. Returns false if it is not above, or nothing can go.
  bool EvictOverCapacity(DeviceTier& tier) STORE_LOCKED;

  // ---- limits
  // In bytes of each device's directory. What lies above is evicted by Trimmer.
  void SetCapacities(std::vector<uint64_t> bytes) STORE_LOCKED;
  // A device has come: gives it its capacity.
  void Limit(DeviceTier& tier) STORE_LOCKED;
  // A device has come or gone, or has another capacity: what tenants share has changed.
  void Share() STORE_LOCKED;

 private:
  // Whether there is space for the chunk, or a tenant that would give some.
  bool HasRoom(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  void Evict(DeviceTier& tier, ChunkSlot slot) STORE_LOCKED;
  // The tenant whose chunks go for a window of so many blocks of `taker`'s. None: nobody has so
  // much to give.
  std::optional<TenantId> WindowDonor(DeviceTier& tier, TenantId taker, uint64_t blocks)
      STORE_LOCKED;
  bool BeginSearch(DeviceTier& tier, const Chunk& chunk) STORE_LOCKED;
  WindowSearch::Yield LookAt(const DeviceTier& tier, TenantId from, uint64_t granule) STORE_LOCKED;
  // Evicts what can go of the window. Returns false if that has to go on in another hold.
  bool EmptyGranules(DeviceTier& tier, TenantId taker) STORE_LOCKED;
  // Evicts one chunk of the tenant that has to give (shares.h), so that `tenant` gets its blocks.
  Evicted EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  const uint64_t most_reserve_blocks_;
  std::vector<uint64_t> capacities_ STORE_GUARDED;  // by device, in bytes
};

}  // namespace kvkeep::store_internal
