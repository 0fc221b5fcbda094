#include "tiers/store/fill_outcomes.h"

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

FillOutcomes::FillOutcomes(const Clock* clock, Parts parts)
    : clock_(*clock),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      records_(*parts.records),
      writes_(*parts.writes),
      scrubber_(*parts.scrubber),
      sweeper_(*parts.sweeper),
      beyond_(parts.beyond) {}

void FillOutcomes::OnReadEnded(ChunkSlot slot, LowerTier& from,
                       std::optional<std::chrono::seconds> age) {
  Chunk& chunk = chunks_.table.at(slot);
  if (!from.has_records()) {
    beyond_->recaller.OnReadEnded(chunk);
    if (age.has_value()) chunk.beyond = beyond_->tier.ages.Of(*age, clock_.Now());
    return;
  }
  KVKEEP_CHECK(chunk.g3_reading && chunk.device == from.number);
  chunk.g3_reading = false;
  if (chunk.in_g3_policy) tiers_.policy(chunk).Unpark(slot);
}

void FillOutcomes::OnRead(Chunk& chunk, LowerTier& from) {
  if (from.has_records()) scrubber_.NoteReadable(chunk.id);
  if (chunk.doubtful) {
    records_.EndDoubt(chunk);
  } else if (!chunk.detached && chunk.g3_state == G3State::kStored) {
    records_.EndReplaced(chunk);
  }
}

void FillOutcomes::OnFilled(ChunkSlot slot, LowerTier* from) {
  from == nullptr || from->has_records() ? WriteBackIfUnbacked(slot) : LeaveToNextUse(slot);
}

bool FillOutcomes::IsReadAgain(const Chunk& chunk) {
  return scrubber_.NoteUnreadable(chunk, clock_.Now());
}

void FillOutcomes::OnSpoilt(ChunkSlot slot, bool keeps_record) {
  keeps_record ? records_.LeaveToReaders(slot) : records_.Lose(slot);
}

// The chunk has become resident, and G3 may not have it. Callers that wait until it is durable
// waited for this.
void FillOutcomes::WriteBackIfUnbacked(ChunkSlot slot) {
  const Chunk& chunk = chunks_.table.at(slot);
  if (!chunk.live || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  if (!chunks_.draining) writes_.Queue(slot, std::nullopt, tiers_.durable_waiters.Has(slot));
  if (!chunk.dirty()) writes_.WaitForDevice(slot);
}

// The chunk was recalled and can be recalled again. It is written to a drive only once it is used
// here again: the next lookup offers it, like a chunk that the admission did not want.
void FillOutcomes::LeaveToNextUse(ChunkSlot slot) {
  Chunk& chunk = chunks_.table.at(slot);
  if (tiers_.durable_waiters.Has(slot)) return WriteBackIfUnbacked(slot);
  if (tiers_.empty() || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  chunk.unadmitted = true;
  ++beyond_->tier.counters.recalled_unwritten;
}

void FillOutcomes::OnVerified(ChunkSlot slot) { sweeper_.OnVerified(slot); }

void FillOutcomes::NoteIo(LowerTier& tier, bool write, const absl::Status& status) {
  tiers_.NoteIo(tier, write, status);
}

}  // namespace kvkeep::store_internal
