// Leaver: lets go of a device that is to be opened anew, or is given up, while the store serves.
//
// From then on nothing begins on the device. Its chunks are misses, and chunks that wait to be
// written to it are offered to other devices. Work under way ends by itself; Tick sees when. Then
// the store lets go of the device. Its index keeps its records. The deletes that it has not taken
// are remembered as missed deletes (missed_deletes.h), so that no deleted chunk comes back when the
// device joins.
//
// Owned by Disk (disk.h). The store's lock protects it.
#pragma once

#include "tiers/base/mutex.h"
#include "tiers/store/chunks.h"
#include "tiers/store/committer.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/records.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Leaver {
 public:
  // All are borrowed.
  Leaver(const Clock* clock, Chunks* chunks, DeviceTiers* tiers, Records* records,
         DeviceSpace* space, Committer* committer, EventHub* events);

  // As Store::Detach. Takes the lock.
  void Detach(size_t device, StatusCallback done);
  // Goes on with a device that leaves, once nothing of it is under way. This runs on its index
  // executor, as it may take long. Called about ten times a second.
  void Tick(DeviceTier& tier) STORE_LOCKED;
  // For a device that cannot join. The table forgets all chunks of it; its index keeps its records.
  // Takes the lock.
  void LetGo(DeviceTier& tier);

  // While a caller holds this, the store does not let go of a device that DeviceTiers::Attached
  // names. It is taken before the store's lock.
  Mutex* telling() { return &telling_mu_; }

 private:
  void Leave(DeviceTier& tier, StatusCallback has_left);
  void ForgetAll(Section& section, DeviceTier& tier) STORE_LOCKED;
  // Forgets the chunk's part in G3. If G2 has the chunk, it is to be written again.
  void Forget(ChunkSlot slot) STORE_LOCKED;
  void ForgetRecord(ChunkSlot slot) STORE_LOCKED;

  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  DeviceSpace& space_;
  Committer& committer_;
  EventHub& events_;
  // Protects no data. It keeps the devices that DeviceTiers::Attached has named alive.
  Mutex telling_mu_ ABSL_ACQUIRED_BEFORE(store_lock);
};

}  // namespace kvkeep::store_internal
