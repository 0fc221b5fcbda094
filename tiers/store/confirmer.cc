#include "tiers/store/confirmer.h"

#include <memory>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

Confirmer::Confirmer(const StoreDeps& deps, Chunks* chunks, DeviceTiers* tiers, Records* records,
                     Committer* committer, const ImageVerifier* verifier)
    : chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      committer_(*committer),
      verifier_(*verifier),
      deps_(deps) {}

// After a power cut a record may point at blocks whose data never arrived, or that hold another
// image. So a chunk is promised only once its header has been read.
void Confirmer::Pump(DeviceTier& tier) {
  if (!tier.here()) return;  // the end of its join calls this again
  if (tier.confirmed() && tier.confirmed_boot != deps_.boot_id) {
    tier.confirmed_boot = deps_.boot_id;
    // Syncs the mark at once. If the process were killed before the next sync, the next start would
    // take the records for those of another boot.
    tier.syncs.NoteDirty();
    committer_.StartSync(tier);
  }
  if (!tier.readable()) return;  // Tick calls this again
  tier.confirms.TakeDue(deps_.clock->Now());
  while (tier.confirms.may_begin()) {
    if (chunks_.Spent()) return chunks_.PumpLater(tier.pump);
    const ConfirmQueue::Entry confirm = *tier.confirms.Next();
    const ChunkSlot slot = confirm.slot;
    chunks_.Count(work::kFind);
    Chunk& chunk = chunks_.table.at(slot);
    const bool same = chunk.live && chunk.unconfirmed && chunk.device == tier.number;
    if (!same || chunk.g3_reading) continue;
    auto page = std::make_shared<AlignedPage>();
    if (!page->ok()) {
      ++chunks_.counters.allocation_failures;
      return tier.confirms.AddAgain(confirm, deps_.clock->Now());
    }
    chunks_.Count(work::kStart);
    tier.confirms.Begin();
    KVKEEP_CHECK(chunk.g3_state == G3State::kStored);
    // A promotion sets this, too. While it is set, nobody takes the record away
    // (DeviceSpace::EvictOne parks the chunk) and the device does not leave. So OnRead finds the
    // same chunk in the slot. The queue may name a slot that is another chunk's by now; then one
    // header more is read.
    chunk.g3_reading = true;
    IoOperation read{.kind = IoOperation::Kind::kRead,
                     .offset = DeviceOffset(chunk.g3.first_block().value() * kBlockBytes),
                     .data = page->bytes,
                     .bytes = kHeaderBytes,
                     .done = [this, confirm, page](absl::Status status) {
                       OnRead(confirm, *page, std::move(status));
                     }};
    chunks_.Later([io = &tier.device->io(), read = std::move(read)]() mutable {
      io->Submit(std::move(read));
    });
  }
}

void Confirmer::OnRead(ConfirmQueue::Entry confirm, AlignedPage& page, absl::Status status) {
  const ChunkSlot slot = confirm.slot;
  ImageHeader header;
  const bool io_ok = status.ok();
  const bool away = IsAway(status);
  // The record may be a promise, so a spot that cannot be read, or a device that recovers, gets
  // some time.
  const bool again = !io_ok && !away && ConfirmQueue::TryAgain(confirm);
  if (io_ok) {
    absl::StatusOr<ImageHeader> decoded = DecodeHeader(page.span(), deps_.mac_key);
    status = decoded.status();
    if (decoded.ok()) header = *std::move(decoded);
  }
  Section section(&chunks_);
  DeviceTier& tier = tiers_.of(chunks_.table.at(slot));
  tier.confirms.End();
  tier.health.NoteHeard();
  if (away) {  // this says nothing about the record
    tiers_.NoteIo(tier, false, status);
  } else if (io_ok || confirm.failures == 1) {  // one bad spot: the device counts once
    tiers_.NoteIo(tier, false, io_ok ? absl::OkStatus() : status);
  }
  if (away || again) tier.confirms.AddAgain(confirm, deps_.clock->Now());
  bool detached = false, keyless = false;
  {
    Change chunk(&chunks_, slot);
    KVKEEP_CHECK(chunk->g3_reading && chunk->g3_state == G3State::kStored);
    chunk->g3_reading = false;
    detached = chunk->detached;
    if (chunk->in_g3_policy) tiers_.policy(*chunk).Unpark(slot);
    if (status.ok()) status = tier.CheckHeader(header, tier.Expect(*chunk));
    if (status.ok() && header.encryption.has_value() &&
        verifier_.KeyOf(*header.encryption) == nullptr) {
      keyless = true;
      status = absl::NotFoundError("its key is not in the key ring");
    }
    chunk->unconfirmed = !status.ok();  // one that is about to go stays unpromised
    if (status.ok() && Planted(Canary::kDoubtEndsEarly) && chunk->doubtful) {
      records_.EndDoubt(*chunk);
    }
  }
  if (!status.ok() && !away && !again && !detached) {
    ++(keyless ? chunks_.counters.keyless_chunks : chunks_.counters.stale_records);
    records_.Lose(slot);
  }
  Pump(tier);
}

}  // namespace kvkeep::store_internal
