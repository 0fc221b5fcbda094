// FillOutcomes: what a chunk's other copies become when it was read into G2, or verified there, or
// neither could be done (filler.h).
//
// A chunk that is whole in G2 and has no record in G3 is written back, unless it was recalled from
// beyond the node. A chunk whose read failed is read again later, or is lost.
//
// Owns nothing; the store's lock protects what it changes.
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
  // What it works on; all are borrowed.
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
  void OnSpoilt(ChunkSlot slot, bool stays) STORE_LOCKED override;
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
