// Disk: G3, the chunks that the store keeps on its devices.
//
// Owns the objects that G3 consists of and puts them together. Each object has a header of its own
// and is reached by its name. Disk itself does what concerns all devices: it pumps a device, ticks,
// drains and waits. The list below is in the order of construction. Each object knows only those
// before it; committer knows writes as its host.
//
//   tiers      has the devices, each chunk's state there, the accounts   device_tiers.h
//   records    says which record is a chunk's, and keeps others          records.h
//   space      chooses a device, and evicts chunks there                 device_space.h
//   trimmer    evicts chunks above limits that have become smaller       trimmer.h
//   committer  brings records into the indexes, and syncs                committer.h
//   writes     writes chunks from G2 to a device                         write_backer.h
//   confirmer  reads the headers of records that another boot left       confirmer.h
//   learned, recency   save the order of eviction for the next start
//   leaver, joiner     let devices go and come
//
// The store owns it. The store's lock protects it; a method without STORE_LOCKED takes the lock.
#pragma once

#include <memory>
#include <vector>

#include "tiers/store/committer.h"
#include "tiers/store/confirmer.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/filler.h"
#include "tiers/store/joiner.h"
#include "tiers/store/learned_state.h"
#include "tiers/store/leaver.h"
#include "tiers/store/recency_saver.h"
#include "tiers/store/records.h"
#include "tiers/store/trimmer.h"
#include "tiers/store/write_backer.h"

namespace kvkeep::store_internal {

class Disk {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    Filler* filler;
    const ImageVerifier* verifier;
    Scrubber* scrubber;
    Sweeper* sweeper;
    EventHub* events;
    ReuseMeter* reuse;
  };
  // `claims`: each tenant's claim on G3. `keys`: by TenantId; null: images are written without
  // encryption. No device is here before `joiner` has run JoinAtStart.
  Disk(const StoreOptions& options, const StoreDeps& deps, std::vector<Shares::Claim> claims,
       std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers, Parts parts);

  // Does the periodic work of each device. `passed`: the time since the last call. May yield.
  void Tick(Section& section, std::chrono::nanoseconds passed) STORE_LOCKED;
  // Returns whether nothing is under way and nothing waits for its time. Two things may wait, as a
  // second more does not matter to them: to look at a device again, and to save recency.
  bool at_rest() const STORE_LOCKED;

  // See Store::WhenDurable, Store::SyncAll.
  void WhenDurable(const ChunkId& id, StatusCallback done);
  void SyncAll(StatusCallback done);

  // Checks the blocks and records on the devices (KVKEEP_CHECK). `blocks`: how many blocks chunks
  // have on each device. `stored`: how many chunks are stored on each device.
  void CheckInvariants(std::vector<uint64_t> blocks, const std::vector<uint64_t>& stored) const
      STORE_LOCKED;

  // ---- its parts
  DeviceTiers tiers;
  Records records;
  DeviceSpace space;
  Trimmer trimmer;
  Committer committer;
  WriteBacker writes;
  Confirmer confirmer;
  LearnedState learned;
  RecencySaver recency;
  Leaver leaver;
  Joiner joiner;

 private:
  void Pump(DeviceTier& tier) STORE_LOCKED;
  void CheckDoubt(const DeviceTier& tier) const STORE_LOCKED;

  Chunks& chunks_;
  Filler& filler_;
  EventHub& events_;
  const Clock& clock_;
  const std::chrono::nanoseconds sync_interval_;
};

}  // namespace kvkeep::store_internal
