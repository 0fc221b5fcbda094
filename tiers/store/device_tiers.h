// DeviceTiers: the devices of G3, what each chunk has on them, and the accounts of that.
//
// Owns a DeviceTier for each place of a device, whether or not a device is there, and what is
// counted over all of them: the tenants' shares of G3, the chunks that are dirty, who waits for a
// chunk to be durable. Every change of a chunk's G3 state goes through SetState, and every record
// that becomes a chunk's own through StoreBy. It decides nothing: which record is whose is said by
// Records (records.h), what is evicted by DeviceSpace (device_space.h).
//
// Owned by Disk (disk.h). The store's lock protects it; devices stay where they are.
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

  // No device is there yet. `claims`: of tenants on G3. All are borrowed.
  DeviceTiers(const StoreOptions& options, const StoreDeps& deps, std::vector<Shares::Claim> claims,
              Chunks* chunks, EventHub* events);

  // ---- the devices
  const Devices& all() const { return devices_; }
  bool empty() const { return devices_.empty(); }
  size_t size() const { return devices_.size(); }
  DeviceTier& at(size_t device) const { return *devices_[device]; }
  // ChooseDevice comes soon (device_space.h). Needs no lock.
  void PrefetchAll() const {
    for (const auto& tier : devices_) tier->Prefetch();
  }
  // The device of the chunk's record, or of its write.
  DeviceTier& of(const Chunk& chunk) const { return *devices_[chunk.device]; }
  bool AnyJoins() const STORE_LOCKED;
  // Memory to note what begins where on a device of so many blocks. Much; it needs no lock.
  std::unique_ptr<PlaceIndex> MakePlaces(BlockCount blocks) const;
  // A device is being opened, or joins, and has not taken too long for it.
  bool AnyComes() const STORE_LOCKED;
  bool AnyTakesWrites() const STORE_LOCKED;
  // A device has a chunk of the tenant that may be evicted.
  bool CanGive(TenantId tenant) const STORE_LOCKED;
  // How an I/O of a tier ended: its health, and who is told of that.
  void NoteIo(LowerTier& tier, bool write, const absl::Status& status) STORE_LOCKED;
  void NoteFailedSync(DeviceTier& tier, const absl::Status& status) STORE_LOCKED;
  // Devices that are not here learn of deletes when they join. None: all chunks were deleted.
  void NoteMissed(const ChunkSet& deleted) STORE_LOCKED;
  void NoteMissed(const std::optional<NamespaceDigest>& cleared) STORE_LOCKED;

  // ---- for the owner of the devices; these take the lock
  // By number; null: the device is away.
  std::vector<NvmeDevice*> Attached();
  // None: the device is not here, or does not answer.
  std::optional<DeviceState> StateOfAnswering(size_t device);
  // Nobody waits for the device any more.
  void NotComing(size_t device);

  // ---- a chunk in G3
  // A lookup finds it there, and it can be read.
  bool InG3(const Chunk& chunk) const STORE_LOCKED;
  EvictionPolicy& policy(const Chunk& chunk) STORE_LOCKED { return of(chunk).policy(chunk.tenant); }
  Fingerprint InsertIntoPolicy(ChunkSlot slot, ChunkSlot parent, MonotonicTime now) STORE_LOCKED;
  void EraseFromPolicy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason)
      STORE_LOCKED;
  void SetState(Chunk& chunk, G3State state) STORE_LOCKED;
  // It is not found any more. What is being written already ends by itself.
  void OnDetached(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // Gives a record to a chunk that has none. Counts neither shares nor extents. REQUIRES: inside a
  // Change of the chunk.
  void StoreBy(Chunk& chunk, DeviceTier& tier, ExtentList extents, const KnownRecord& record)
      STORE_LOCKED;
  // Takes its record away; whose the extents are from then on the caller decides. REQUIRES: inside
  // a Change of the chunk; it is stored, and is not being read.
  ExtentList TakeOff(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // As TakeOff, when it has left the policy and the caller has its extents.
  void ClearRecord(Chunk& chunk) STORE_LOCKED;
  // REQUIRES: it is stored.
  KnownRecord RecordOf(const Chunk& chunk) const STORE_LOCKED;
  // Has the index forget a record while its blocks stay whose they are.
  void RemoveRecord(DeviceTier& tier, const ChunkId& id) STORE_LOCKED;
  void QueueRemoval(DeviceTier& tier, PendingRemove remove) STORE_LOCKED;

  // ---- write-backs that end without a record, or do not begin
  // `why` is Unavailable: the chunk is offered again later.
  void GiveUpWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                       const absl::Status& why) STORE_LOCKED;
  void WaitUnbacked(ChunkSlot slot, ChunkSlot parent) STORE_LOCKED;
  // As WaitUnbacked, for a while: no device took it, or its device has left.
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
