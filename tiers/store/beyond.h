// Beyond: writes images beyond the node and removes them there, and decides when.
//
// Chunks that were put, or used again, are offered: they wait for their turn (remote_writes.h), are
// encrypted on the copy executor, and are handed to the source. Images that are about to expire
// there are written anew (remote_ages.h). If a chunk is deleted here, its image is removed there. A
// log has its name until that is done (remote_removals.h, removal_journal.h).
//
// A source that keeps nothing (RemoteSource::keeps) gets none of these calls.
//
// Nothing is promised: a write that cannot be done is dropped or offered again, and counted. A
// deleted chunk does not come back: if it is being written there, or is on its way here, its image
// is removed once that has ended. recaller.h brings chunks from there.
//
// Works on the RemoteTier that it is given. The store's lock protects it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tiers/store/change.h"
#include "tiers/store/chunks.h"
#include "tiers/store/cipher_buffers.h"
#include "tiers/store/remote_tier.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Beyond {
 public:
  // `keys`: by TenantId. Borrows everything but the buffers.
  Beyond(Chunks* chunks, RemoteTier* remote, const StoreDeps& deps,
         std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers,
         uint64_t write_bytes_per_second);

  // ---- writes
  // Offers a chunk that was put. `wanted`: its client wants it there.
  void OfferPut(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool wanted) STORE_LOCKED;
  // A lookup has found these links, one for each key and part. `now`: RemoteAges::At() of the
  // present. May yield.
  void OfferUsed(Section& section, const ChunkSet& chunks,
                 std::span<const EvictionPolicy::ChainLink> found, RemoteAges::Mark now)
      STORE_LOCKED;
  // Sets the rate of writes. 0: nothing is written.
  void SetWriteRate(uint64_t bytes_per_second) STORE_LOCKED;
  bool writes() const STORE_LOCKED { return writes_; }  // whether anything is written
  // For a store that drains. `writes`: chunks that wait are still written, and chunks that could
  // not be written are offered once more. Else no more writes begin. May yield.
  void BeginDrain(Section& section, bool writes) STORE_LOCKED;

  // ---- removals
  // Removes the image of a chunk that was deleted here, or whose image there is bad.
  void Remove(const ChunkId& id, RemoteRemovals::Why why) STORE_LOCKED;
  // Calls `done` once the log has all removals that were asked for. `durable`: waits until it is
  // synced, too.
  void WhenNoted(bool durable, StatusCallback done) STORE_LOCKED;

  // Starts the writes and removals that may start now. Called by the tier's pump.
  void Pump() STORE_LOCKED;
  // Called about ten times a second.
  void Tick() STORE_LOCKED;

 private:
  void PumpLogged() STORE_LOCKED;
  bool PumpRemovals() STORE_LOCKED;
  void PumpAges() STORE_LOCKED;
  void PumpWrites() STORE_LOCKED;
  void PumpLater() STORE_LOCKED { chunks_.PumpLater(remote_.pump); }
  void Offer(ChunkSlot slot, const std::optional<ChunkKey>& parent) STORE_LOCKED;
  void OfferToRefresh(ChunkSlot slot) STORE_LOCKED;
  void OnAge(const ChunkId& id, const absl::StatusOr<std::chrono::seconds>& age);
  void StartWrite(RemoteWrites::Sent sent) STORE_LOCKED;
  void SubmitWrite(RemoteWrites::Sent sent, ArenaImage image, ImageHeader header,
                   const DataKey& key);
  void OnWritten(RemoteWrites::Sent sent, uint64_t bytes, const absl::Status& status);
  void OnRemoved(const ChunkId& id, const absl::Status& status);

  Chunks& chunks_;
  RemoteTier& remote_;
  const StoreDeps& deps_;
  const std::vector<const DataKey*> keys_;
  const std::shared_ptr<CipherBuffers> cipher_buffers_;
  bool writes_ STORE_GUARDED;           // the rate is not 0, and the source keeps images
  bool stopped_ STORE_GUARDED = false;  // nothing more begins
};

}  // namespace kvkeep::store_internal
