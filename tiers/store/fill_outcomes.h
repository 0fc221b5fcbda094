// FillOutcomes: decides what happens to a chunk's other copies once Filler (filler.h) has read the
// chunk into G2 or verified it there, or has failed to.
//
// - The chunk is whole in G2 and has no record in G3: it is written back. A chunk that was recalled
//   from beyond the node is not written back before it is used again.
// - The bytes are damaged: the chunk is detached and its record removed.
// - The device could not be read: nothing is known of the bytes, so the record stays. The scrub
//   reads the chunk again later. After several failures the chunk is lost (suspects.h).
//
// Owns nothing. The store's lock protects what it changes.
#pragma once

#include "tiers/store/beyond_node.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/filler.h"
#include "tiers/store/records.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/sweeper.h"
#include "tiers/store/write_backer.h"

namespace kvkeep::store_internal {

class FillOutcomes final : public Filler::Host {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Records* records;
    WriteBacker* writes;
    Scrubber* scrubber;
    Sweeper* sweeper;
    BeyondNode* beyond;  // null: nothing lies beyond the node
  };
  FillOutcomes(const Clock* clock, Parts parts);

  // ---- Filler::Host
  void OnReadEnded(ChunkSlot slot, LowerTier& from, std::optional<std::chrono::seconds> age)
      STORE_LOCKED override;
  void OnRead(Chunk& chunk, LowerTier& from) STORE_LOCKED override;
  void OnFilled(ChunkSlot slot, LowerTier* from) STORE_LOCKED override;
  bool IsReadAgain(const Chunk& chunk) STORE_LOCKED override;
  void OnSpoilt(ChunkSlot slot, bool keeps_record) STORE_LOCKED override;
  void OnVerified(ChunkSlot slot) STORE_LOCKED override;
  void NoteIo(LowerTier& tier, bool write, const absl::Status& status) STORE_LOCKED override;

 private:
  void WriteBackIfUnbacked(ChunkSlot slot) STORE_LOCKED;
  void LeaveToNextUse(ChunkSlot slot) STORE_LOCKED;

  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  WriteBacker& writes_;
  Scrubber& scrubber_;
  Sweeper& sweeper_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
