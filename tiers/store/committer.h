// Committer: adds records to the devices' indexes, removes records from them, and syncs.
//
// Records that are to be added or removed wait in the IndexCommits of their device. PumpIndex makes
// a batch of them and hands it to the device's index executor. StartSync makes a device's data
// stable, then its index. When a batch or a sync has ended, Committer changes the chunks: they are
// stored, given up, or stay as they were. Once a batch with removals is in the index, it frees
// their extents.
//
// Owned by Disk (disk.h). The store's lock protects it. Batches and syncs end on the devices'
// executors and take the lock themselves.
#pragma once

#include <memory>

#include "tiers/base/histogram.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/records.h"
#include "tiers/store/section.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class Committer {
 public:
  // The object that writes to the devices.
  class Host {
   public:
    // The dirty budget may have room again.
    virtual void PumpUnbacked(DeviceTier& tier) STORE_LOCKED = 0;
    // The device may have space again, or takes no writes any more.
    virtual void PumpWrites(DeviceTier& tier) STORE_LOCKED = 0;

   protected:
    ~Host() = default;
  };

  // All are borrowed.
  Committer(Chunks* chunks, DeviceTiers* tiers, Records* records, const Clock* clock, Host* host);

  // Begins a batch, if one may begin. Called by the device's pump, too.
  void PumpIndex(DeviceTier& tier) STORE_LOCKED;
  // Begins a sync, unless one is under way or the device is not here.
  void StartSync(DeviceTier& tier) STORE_LOCKED;
  // Gives up all adds that no batch has taken. Returns their number. May yield.
  uint64_t GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why) STORE_LOCKED;
  // Fails callers that wait for removals on a device that has stopped answering. Called about ten
  // times a second.
  void Tick(DeviceTier& tier) STORE_LOCKED;

  // ---- who waits
  // Calls `done` once every index has taken the removals that were asked for up to now. `durable`:
  // waits until they are stable, too. A device that is not here learns of them when it joins.
  void WhenRemoved(bool durable, StatusCallback done) STORE_LOCKED;
  // Calls `done` once everything that is committed now is stable, on all devices.
  void WhenAllStable(StatusCallback done) STORE_LOCKED;

  // Returns how old chunks were when their records were committed.
  const Histogram& write_back_age() const STORE_LOCKED { return write_back_age_; }

 private:
  bool MayBeClean(const DeviceTier& tier) const STORE_LOCKED;
  void BecomeUnclean(DeviceTier& tier) STORE_LOCKED;
  void OnCommitted(DeviceTier& tier, std::shared_ptr<CommitBatch> batch, absl::Status status);
  void EndBatch(DeviceTier& tier, Section& section, const CommitBatch& batch) STORE_LOCKED;
  void EndFailedBatch(DeviceTier& tier, Section& section, CommitBatch& batch,
                      const absl::Status& why, bool put_off) STORE_LOCKED;
  void OnAddCommitted(DeviceTier& tier, const PendingAdd& add) STORE_LOCKED;
  void RemoveUnsure(DeviceTier& tier, const PendingAdd& add) STORE_LOCKED;
  void OnSynced(DeviceTier& tier, const StableMark& mark, bool doubt_saved, absl::Status status);
  void OnSyncPutOff(DeviceTier& tier);
  void WhenStable(DeviceTier& tier, StatusCallback done);
  // Frees the extents once `sequence` is stable, or a sync has failed.
  void FreeWhenStable(DeviceTier& tier, CommitSequence sequence, ExtentList extents) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  const Clock& clock_;
  Host& host_;
  Histogram write_back_age_ STORE_GUARDED{kAgeBounds};
};

}  // namespace kvkeep::store_internal
