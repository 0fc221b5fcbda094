// Records: which record of G3 is a chunk's own, which are kept beside it, and how they end.
//
// A chunk has at most one record of its own. Another one is kept beside it, with its image, where a
// promise may rest on it: the chunk was put anew while its record was in doubt, or two devices have
// one each and neither is known to be true. When the chunk is lost, a record that is kept becomes
// the chunk's again. The head of records.cc says why nothing is lost.
//
// Changes the table, the devices' accounts and the queues of removals; reads and writes nothing
// itself. Owned by Disk (disk.h). The store's lock protects it.
#pragma once

#include <optional>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/replaced.h"
#include "tiers/store/scrubber.h"

namespace kvkeep::store_internal {

class Records {
 public:
  // All are borrowed.
  Records(Chunks* chunks, DeviceTiers* tiers, Scrubber* scrubber, EventHub* events,
          const Clock* clock);

  // ---- a chunk goes
  // Deletes the chunk: as Chunks::Detach, and no record of it stays for a restart to find.
  void Detach(ChunkSlot slot) STORE_LOCKED;
  // Detaches a chunk that is about to be put anew. Its record stays until the new one is stable.
  void Replace(ChunkSlot slot) STORE_LOCKED;
  // Detaches a damaged chunk. A record of it that is kept becomes the chunk, in another slot.
  void Lose(ChunkSlot slot) STORE_LOCKED;
  // The chunk's copy in G2 is damaged, and readers hold it. The copy in G3 becomes a chunk of its
  // own, in another slot: new readers find it at once.
  void LeaveToReaders(ChunkSlot slot) STORE_LOCKED;
  // Takes the chunk out of G3. REQUIRES: stored, not being read; inside a Change of this chunk.
  void Remove(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) STORE_LOCKED;
  // The chunk has left every tier: it gets a record back that it replaced, if one is kept and fits.
  void Return(ChunkSlot slot) STORE_LOCKED;

  // ---- records that are kept
  const ReplacedRecords& kept() const STORE_LOCKED { return replaced_; }
  // Keeps a record, whose blocks are taken, beside the chunk of its id. The chunk has another
  // record or none.
  void KeepBeneath(ChunkSlot slot, DeviceTier& tier, const ExtentList& extents,
                   const KnownRecord& record) STORE_LOCKED;
  // Keeps the chunk's own record beside it, since it is in doubt and the chunk is to be written
  // anew. Returns false if the record is not in doubt or is being read, or the chunk is not in G2.
  bool SetAside(ChunkSlot slot) STORE_LOCKED;
  // Keeps the chunk's own record beside it. REQUIRES: inside a Change of the chunk.
  void LayAside(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // Removes older records of the chunk that are kept. On its own device: now, unless committing its
  // own has overwritten it. On other devices: once its own is not doubtful and has been synced.
  // REQUIRES: it is stored.
  void EndReplaced(const Chunk& chunk) STORE_LOCKED;
  // Takes the record that an add overwrites, as a removal of the same batch. None: none is kept.
  std::optional<PendingRemove> TakeReplaced(const ReplacedAt& at) STORE_LOCKED;
  // The batch with that removal failed: keeps the record again. Returns false if the caller has to
  // queue the removal by itself.
  bool RestoreReplaced(DeviceTier& tier, PendingRemove& remove) STORE_LOCKED;
  // Takes a record of a device that leaves: its index keeps it, and its blocks are nobody's here.
  Replaced TakeKept(const ReplacedAt& at) STORE_LOCKED;
  // Gives up one record that is kept on the device, of one tenant or of any. For when there is no
  // chunk to evict.
  Evicted EvictKept(DeviceTier& tier, std::optional<TenantId> tenant) STORE_LOCKED;
  // Removes all records that are kept of the chunk.
  void Forget(const ChunkId& id) STORE_LOCKED;
  // Whether the name is a newer record's on this device, or a kept one's, so that a removal by name
  // would take the wrong one.
  bool HasOther(const DeviceTier& tier, const ChunkId& id) const STORE_LOCKED;

  // ---- doubt
  // The chunk's record was read whole, and is right.
  void EndDoubt(Chunk& chunk) STORE_LOCKED;
  // Whether the chunk's record and this one are both sure and of processes before this one, so that
  // only a read tells which is true.
  bool Contest(const Chunk& chunk, const KnownRecord& record) const STORE_LOCKED;
  // Neither the chunk's record nor one that is kept beside it is known to be the true one.
  bool DoubtedTwice(const Chunk& chunk) const STORE_LOCKED;
  // Queues the chunk for the scrub, if it is DoubtedTwice.
  void DoubtTwice(ChunkSlot slot) STORE_LOCKED;

  // As KVKEEP_CHECK. Adds the blocks of the records that are kept on each device.
  void CheckInvariants(std::vector<uint64_t>& g3_blocks) const STORE_LOCKED;

 private:
  // A detached chunk is about to leave G3: keeps its record, if that was to stay (Replace).
  bool KeepReplaced(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  std::optional<KnownRecord> OverwrittenRecord(const Chunk& chunk, ChunkSlot slot) const
      STORE_LOCKED;
  void BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) STORE_LOCKED;
  void ForgetOne(const ReplacedAt& at, bool evicted = false) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Scrubber& scrubber_;
  EventHub& events_;
  const Clock& clock_;
  ReplacedRecords replaced_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
