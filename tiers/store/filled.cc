// What a chunk's other copies become when it was read into G2, or verified there, or neither could
// be done (filler.h).
#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

void Core::OnReadEnded(ChunkSlot slot, LowerTier& from,
                       std::optional<std::chrono::seconds> age) {
  Chunk& chunk = table_.at(slot);
  if (!from.has_records()) {
    recaller_->OnReadEnded(chunk);
    if (age.has_value()) chunk.beyond = remote_->ages.Of(*age, deps_.clock->Now());
    return;
  }
  KVKEEP_CHECK(chunk.g3_reading && chunk.device == from.number);
  chunk.g3_reading = false;
  if (chunk.in_g3_policy) g3_policy(chunk).Unpark(slot);
}

void Core::OnRead(Chunk& chunk, LowerTier& from) {
  if (from.has_records()) scrubber_.NoteReadable(chunk.id);
  if (chunk.doubtful) {
    EndDoubt(chunk);
  } else if (!chunk.detached && chunk.g3_state == G3State::kStored) {
    EndReplaced(chunk);
  }
}

void Core::OnFilled(ChunkSlot slot, LowerTier* from) {
  from == nullptr || from->has_records() ? WriteBackIfUnbacked(slot) : LeaveToNextUse(slot);
}

bool Core::IsReadAgain(const Chunk& chunk) {
  return scrubber_.NoteUnreadable(chunk, deps_.clock->Now());
}

void Core::OnSpoilt(ChunkSlot slot, bool stays) {
  stays ? LeaveToReaders(slot) : LoseChunk(slot);
}

// It has become resident, and G3 may not have it. Who waits for it to be durable waited for this.
void Core::WriteBackIfUnbacked(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (!chunk.live || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  if (!draining_) QueueWriteBack(slot, std::nullopt, durable_waiters_.Has(slot));
  if (!chunk.dirty()) WaitForDevice(slot);
}

// It was recalled. It is there to be recalled again, so a drive is worn for it once it is used here
// again: a lookup offers it then, as what its admission did not want.
void Core::LeaveToNextUse(ChunkSlot slot) {
  Chunk& chunk = table_.at(slot);
  if (durable_waiters_.Has(slot)) return WriteBackIfUnbacked(slot);
  if (devices_.empty() || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  chunk.unadmitted = true;
  ++remote_->counters.recalled_unwritten;
}

// The copy in G3 gets a chunk of its own: new readers find it at once, while those of the damaged
// copy let go of that when they like.
void Core::LeaveToReaders(ChunkSlot slot) {
  Chunk& old = table_.at(slot);
  // It has no record of its own; one that joined meanwhile may be kept beneath it.
  if (old.g3_state != G3State::kStored) return LoseChunk(slot);
  if (old.g3_reading || old.unconfirmed || table_.full()) return DetachChunk(slot);
  // The record only changes its slot: device, share and what is kept beneath (by id) count it as
  // before, so neither TakeOff nor StoreBy, which count. The old slot loses it before it is
  // detached: else its last reader would free the blocks (Settle).
  Chunk copy = old;
  {
    Change change(&chunks_, slot);
    if (old.in_g3_policy) g3_policy(old).OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
    old.in_g3_policy = false;
    old.g3.clear();
    old.doubtful = false;
    SetG3State(old, G3State::kAbsent);
  }
  chunks_.Detach(slot);
  const ChunkSlot fresh = chunks_.Create(copy.id, copy.shape);
  KVKEEP_CHECK(fresh != kNoSlot);
  ++moves_;
  Change change(&chunks_, fresh);
  change->g3 = std::move(copy.g3);
  change->g3_incarnation = copy.g3_incarnation;
  change->g3_generation = copy.g3_generation;
  change->g3_sequence = copy.g3_sequence;
  change->device = copy.device;
  change->doubtful = copy.doubtful;
  SetG3State(*change, G3State::kStored);
  InsertIntoG3Policy(fresh, kNoSlot, deps_.clock->Now());
  DoubtTwice(fresh);
}

}  // namespace kvkeep::store_internal
