// Disk: G3, the chunks that the store keeps on its devices.
//
// Owns the objects that G3 consists of and puts them together. Each has a header of its own and is
// reached by its name; Disk itself does what concerns all devices: it pumps a device, ticks, drains
// and waits. In this order, where each knows only those before it (committer knows writes as its
// host):
//
//   tiers      the devices, what each chunk has there, the accounts      device_tiers.h
//   records    which record is whose, and which are kept beside it       records.h
//   space      where a chunk is written, who gives way                   device_space.h
//   trimmer    what lies above limits that have become smaller           trimmer.h
//   committer  records into the indexes, syncs                           committer.h
//   writes     chunks from G2 to a device                                write_backer.h
//   confirmer  headers of records that another boot left                 confirmer.h
//   learned, recency   what the next start knows of the order of eviction
//   leaver, joiner     devices that go and come
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
  // What it works on; all are borrowed.
  struct Parts {
    Chunks* chunks;
    Filler* filler;
    const ImageVerifier* verifier;
    Scrubber* scrubber;
    Sweeper* sweeper;
    EventHub* events;
    ReuseMeter* reuse;
  };
  // `claims`: of tenants on G3. `keys`: by TenantId; null: images are written as they are. No
  // device is here before JoinAtStart of `joiner`.
  Disk(const StoreOptions& options, const StoreDeps& deps, std::vector<Shares::Claim> claims,
       std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers, Parts parts);

  // Goes on with each device. `passed`: since the last call. May yield.
  void Tick(Section& section, std::chrono::nanoseconds passed) STORE_LOCKED;
  // Nothing is under way or waits for its time, but for what may as well be a second late: a device
  // looked at again, recency saved.
  bool at_rest() const STORE_LOCKED;

  // As Store::WhenDurable, Store::SyncAll.
  void WhenDurable(const ChunkId& id, StatusCallback done);
  void SyncAll(StatusCallback done);

  // As KVKEEP_CHECK, of blocks and records on the devices. By device: blocks that chunks have
  // there, and chunks that are stored there.
  void CheckInvariants(std::vector<uint64_t> blocks, const std::vector<uint64_t>& stored) const
      STORE_LOCKED;

  // ---- what it consists of
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
