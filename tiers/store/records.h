// Records: which record of G3 is a chunk's own, which are kept beside it, and how they end.
//
// A chunk has at most one record of its own. Another record is kept beside it, with its image, if a
// promise may depend on that image. There are two cases: the chunk was put anew while its record
// was in doubt, or two devices have a record each and neither is known to be true. When the chunk
// is lost, a record that is kept becomes the chunk's again. The head of records.cc says why nothing
// is lost.
//
// Changes the table, the devices' accounts and the queues of removals. Reads and writes nothing
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
  // Deletes the chunk: detaches it (Chunks::Detach) and removes all records of it, so that no
  // restart finds one.
  void Detach(ChunkSlot slot) STORE_LOCKED;
  // Detaches a chunk that is about to be put anew. Its record stays until the new one is stable.
  void Replace(ChunkSlot slot) STORE_LOCKED;
  // Detaches a damaged chunk. If another record of it is kept, that one becomes the chunk, in
  // another slot.
  void Lose(ChunkSlot slot) STORE_LOCKED;
  // For a chunk whose copy in G2 is of no use while readers hold it. Its copy in G3 becomes a chunk
  // of its own, in another slot, where new readers find it at once.
  void LeaveToReaders(ChunkSlot slot) STORE_LOCKED;
  // Takes the chunk out of G3. REQUIRES: stored, not being read; inside a Change of this chunk.
  void Remove(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) STORE_LOCKED;
  // For a chunk that has left every tier. Gives it a record back that it had replaced, if one is
  // kept and has the same shape.
  void Return(ChunkSlot slot) STORE_LOCKED;

  // ---- records that are kept
  const ReplacedRecords& kept() const STORE_LOCKED { return replaced_; }
  // Keeps a record, whose blocks are taken, beside the chunk in `slot`. The chunk has another
  // record or none.
  void KeepBeneath(ChunkSlot slot, DeviceTier& tier, const ExtentList& extents,
                   const KnownRecord& record) STORE_LOCKED;
  // Keeps the chunk's own record beside it if the record is in doubt, so that the chunk can be
  // written anew. Returns false if the record is not in doubt or is being read, or if the chunk is
  // not in G2.
  bool SetAside(ChunkSlot slot) STORE_LOCKED;
  // Keeps the chunk's own record beside it. REQUIRES: inside a Change of the chunk.
  void LayAside(Chunk& chunk, ChunkSlot slot) STORE_LOCKED;
  // Removes the records that are kept of the chunk. A record on the chunk's own device is removed
  // now, unless the commit of the chunk's own record has overwritten it. Records on other devices
  // are removed once the chunk's own is not doubtful and has been synced. REQUIRES: the chunk is
  // stored.
  void EndReplaced(const Chunk& chunk) STORE_LOCKED;
  // Takes the kept record that an add overwrites. Returns it as a removal for the same batch; none:
  // none is kept.
  std::optional<PendingRemove> TakeReplaced(const ReplacedAt& at) STORE_LOCKED;
  // Keeps the record again if the batch with that removal failed. Returns false if the caller has
  // to queue the removal by itself.
  bool RestoreReplaced(DeviceTier& tier, PendingRemove& remove) STORE_LOCKED;
  // Takes the record at `at`, whose device leaves. The device's index keeps the record; its blocks
  // count for nobody here.
  Replaced TakeKept(const ReplacedAt& at) STORE_LOCKED;
  // Gives up one record that is kept on the device, of `tenant` or, if that is none, of any tenant.
  // For a device without a chunk to evict.
  Evicted EvictKept(DeviceTier& tier, std::optional<TenantId> tenant) STORE_LOCKED;
  // Removes all records that are kept of the chunk.
  void Forget(const ChunkId& id) STORE_LOCKED;
  // Returns whether the device has a newer record or a kept one under this name, so that a removal
  // by name would take the wrong record.
  bool HasOther(const DeviceTier& tier, const ChunkId& id) const STORE_LOCKED;

  // ---- doubt
  // Ends the doubt about the chunk's record, whose image was read whole and is right.
  void EndDoubt(Chunk& chunk) STORE_LOCKED;
  // Returns whether both the chunk's record and this one are sure and of earlier processes, so that
  // only a read tells which is true.
  bool Contest(const Chunk& chunk, const KnownRecord& record) const STORE_LOCKED;
  // Returns whether another record is kept beside the chunk's own, and neither is known to be the
  // true one.
  bool DoubtedTwice(const Chunk& chunk) const STORE_LOCKED;
  // Queues the chunk for the scrub, if it is DoubtedTwice.
  void DoubtTwice(ChunkSlot slot) STORE_LOCKED;

  // Checks the rules at the head of records.cc (KVKEEP_CHECK). Adds the blocks of kept records to
  // `g3_blocks`, by device.
  void CheckInvariants(std::vector<uint64_t>& g3_blocks) const STORE_LOCKED;

 private:
  // For a detached chunk that is about to leave G3. Keeps its record if Replace wanted that.
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
