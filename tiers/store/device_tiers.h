// DeviceTiers: the devices of G3, what each chunk has on them, and the accounts of that.
//
// Owns a DeviceTier for each place of a device, whether or not a device is there. Owns the accounts
// over all devices, too: the tenants' shares of G3, the chunks that are dirty, and who waits for a
// chunk to be durable. Every change of a chunk's G3 state goes through SetState, and every record
// that becomes a chunk's own goes through StoreBy. It decides nothing: Records (records.h) says
// which record is whose, and DeviceSpace (device_space.h) what is evicted.
//
// Owned by Disk (disk.h). The store's lock protects it. The DeviceTier objects stay where they are.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tier.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/incarnations.h"
#include "tiers/store/replaced.h"
#include "tiers/store/shares.h"
#include "tiers/store/write_backs.h"

namespace kvkeep::store_internal {

class DeviceTiers {
 public:
  using Devices = std::vector<std::unique_ptr<DeviceTier>>;

  // No device is there yet. `claims`: each tenant's claim on G3. All pointers are borrowed.
  DeviceTiers(const StoreOptions& options, const StoreDeps& deps, std::vector<Shares::Claim> claims,
              Chunks* chunks, EventHub* events);

  // ---- the devices
  const Devices& all() const { return devices_; }
  bool empty() const { return devices_.empty(); }
  size_t size() const { return devices_.size(); }
  DeviceTier& at(size_t device) const { return *devices_[device]; }
  // Fetches memory that ChooseDevice (device_space.h) reads soon. Needs no lock.
  void PrefetchAll() const {
    for (const auto& tier : devices_) tier->Prefetch();
  }
  // Returns the device of the chunk's record, or of its write.
  DeviceTier& of(const Chunk& chunk) const { return *devices_[chunk.device]; }
  bool AnyJoins() const STORE_LOCKED;
  // Returns memory for the index of places on a device of `blocks` blocks. Takes time; no lock.
  std::unique_ptr<PlaceIndex> MakePlaces(BlockCount blocks) const;
  // Returns whether a device is being opened or joins, and has not taken too long.
  bool AnyComes() const STORE_LOCKED;
  bool AnyTakesWrites() const STORE_LOCKED;
  // Has each writable device sync, which counts its index's bytes anew.
  void LookAtIndexesAgain() STORE_LOCKED;
  // Returns whether a device has a chunk of the tenant that may be evicted.
  bool CanGive(TenantId tenant) const STORE_LOCKED;
  // Notes in the tier's health how an I/O ended, and tells others if the health changed.
  void NoteIo(LowerTier& tier, bool write, const absl::Status& status) STORE_LOCKED;
  void NoteFailedSync(DeviceTier& tier, const absl::Status& status) STORE_LOCKED;
  // Notes a delete for devices that are not here; they learn of it when they join. `cleared`: a
  // namespace; none: all chunks were deleted.
  void NoteMissed(const ChunkSet& deleted) STORE_LOCKED;
  void NoteMissed(const std::optional<NamespaceDigest>& cleared) STORE_LOCKED;

  // ---- for the owner of the devices; these take the lock
  // Returns the devices by number; null: the device is away.
  std::vector<NvmeDevice*> Attached();
  // Returns the state of a device; none: it is not here, or does not answer.
  std::optional<DeviceState> StateOfAnswering(size_t device);
  // Ends the waits for a device that was coming.
  void NotComing(size_t device);

  // ---- a chunk in G3
  // Returns whether a lookup finds the chunk in G3, and it can be read there.
  bool InG3(const Chunk& chunk) const STORE_LOCKED;
  EvictionPolicy& policy(const Chunk& chunk) STORE_LOCKED { return of(chunk).policy(chunk.tenant); }
  Fingerprint InsertIntoPolicy(ChunkSlot slot, ChunkSlot parent, MonotonicTime now) STORE_LOCKED;
  void EraseFromPolicy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason)
      STORE_LOCKED;
  void SetState(Chunk& chunk, G3State state) STORE_LOCKED;
  // For a chunk that was detached. If it is being written already, the write ends by itself.
  void OnDetached(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // Gives a record to a chunk that has none. Counts neither shares nor extents. REQUIRES: inside a
  // Change of the chunk.
  void StoreBy(Chunk& chunk, DeviceTier& tier, ExtentList extents, const KnownRecord& record)
      STORE_LOCKED;
  // Takes the chunk's record away, and returns its extents to the caller. REQUIRES: inside a Change
  // of the chunk; it is stored, and is not being read.
  ExtentList TakeOff(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // The same for a chunk that has left the policy and whose extents the caller has.
  void ClearRecord(Chunk& chunk) STORE_LOCKED;
  // Returns what the chunk knows of its record. REQUIRES: it is stored.
  KnownRecord RecordOf(const Chunk& chunk) const STORE_LOCKED;
  // Has the index forget a record, while its blocks stay taken.
  void RemoveRecord(DeviceTier& tier, const ChunkId& id) STORE_LOCKED;
  void QueueRemoval(DeviceTier& tier, PendingRemove remove) STORE_LOCKED;

  // ---- write-backs that end without a record, or do not begin
  // If `why` is Unavailable, the chunk is offered again later.
  void GiveUpWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                       const absl::Status& why) STORE_LOCKED;
  void WaitUnbacked(ChunkSlot slot, ChunkSlot parent) STORE_LOCKED;
  // As WaitUnbacked, but not offered at once: no device took the chunk, or its device has left.
  void WaitAgain(ChunkSlot slot, const std::optional<ChunkKey>& parent) STORE_LOCKED;

  // ---- the state over all devices
  Shares shares STORE_GUARDED;  // of G3, in blocks
  Incarnations incarnations STORE_GUARDED;
  WriteBacks write_backs STORE_GUARDED;
  DurableWaiters durable_waiters STORE_GUARDED;
  bool over_quota STORE_GUARDED = false;    // a tenant may hold more than a new quota
  bool over_capacity STORE_GUARDED = true;  // G2 or a device may hold more than its capacity

 private:
  void MakePolicies(DeviceTier& tier, const StoreOptions& options);

  Chunks& chunks_;
  EventHub& events_;
  const Clock& clock_;
  PlaceIndex::Node* const place_nodes_;  // a chunk is on one device at most
  Devices devices_;
};

}  // namespace kvkeep::store_internal
