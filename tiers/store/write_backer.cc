#include "tiers/store/write_backer.h"

#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/change.h"
#include "tiers/store/encrypted_write.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {

WriteBacker::WriteBacker(const StoreOptions& options, const StoreDeps& deps, Chunks* chunks,
                         DeviceTiers* tiers, DeviceSpace* space, Committer* committer,
                         std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers)
    : chunks_(*chunks),
      tiers_(*tiers),
      space_(*space),
      committer_(*committer),
      deps_(deps),
      most_in_flight_bytes_(options.max_device_writes_in_flight_bytes),
      keys_(std::move(keys)),
      cipher_buffers_(std::move(buffers)) {}

// ---- a write-back begins

// A chunk that is not worth its write now is offered again when it is used.
bool WriteBacker::Admit(Chunk& chunk) {
  AdmissionPolicy& admission = *admissions_[chunk.tenant.value()];
  const uint64_t bytes = chunk.blocks() * kBlockBytes;
  const bool admitted =
      admission.Admit(chunks_.table.fingerprint(chunk.id), bytes, deps_.clock->Now());
  chunk.unadmitted = !admitted;
  if (admitted) return true;
  const bool budget = admission.name() == "write_budget";
  ++(budget ? chunks_.counters.write_budget_refusals : chunks_.counters.second_use_refusals);
  (budget ? chunks_.counters.write_budget_refused_bytes
          : chunks_.counters.second_use_refused_bytes) += bytes;
  return false;
}

void WriteBacker::Queue(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced) {
  DeviceTier* const to = Enqueue(slot, parent, forced);
  if (to != nullptr) PumpWrites(*to);
}

DeviceTier* WriteBacker::Enqueue(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                                 bool forced) {
  if (tiers_.empty()) return nullptr;
  Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kAbsent && chunk.resident());
  KVKEEP_CHECK(chunk.live && !chunk.detached);
  // Over the budget, the new chunk stays unbacked for now: the queue has the heads of its prefix.
  const bool over = !chunks_.draining && !chunks_.pool(chunk).MayBeDirty(chunk.blocks());
  const ChunkSlot near = chunks_.table.FindParent(chunk, parent);
  DeviceTier* const to = space_.ChooseDevice(chunk, near);
  if (to == nullptr || (over && !forced)) {
    ++chunks_.counters.write_backs_cancelled;
    tiers_.WaitUnbacked(slot, near);
    return nullptr;
  }
  chunks_.EndUnbackedWait(slot);
  if (!forced && !Admit(chunk)) return nullptr;
  if (forced) {
    admissions_[chunk.tenant.value()]->OnWritten(chunk.blocks() * kBlockBytes, deps_.clock->Now());
  }
  {
    Change change(&chunks_, slot);
    change->unadmitted = false;
    change->device = to->number;
    change->g3_incarnation = *tiers_.incarnations.Add(chunks_.incarnation());
    change->g3_generation = chunks_.NextGeneration();
    tiers_.SetState(*change, G3State::kQueued);
  }
  to->writes.Push(chunk.g3_generation, {slot, parent}, chunk.blocks());
  return to;
}

void WriteBacker::PumpWrites(DeviceTier& tier) {
  BeginWrites(tier);
  if (!tier.removals_may_wait()) committer_.PumpIndex(tier);
}

void WriteBacker::BeginWrites(DeviceTier& tier) {
  while (tier.writes.anyone_waits()) {
    if (chunks_.Spent()) return chunks_.PumpLater(tier.pump);
    const auto [generation, next] = tier.writes.next();
    Chunk& chunk = chunks_.table.at(next.slot);
    KVKEEP_CHECK(chunk.g3_state == G3State::kQueued && chunk.g3_generation == generation);
    const bool index_full = tier.device->index_over_budget();
    if (index_full) tier.syncs.NoteDirty();  // the next sync looks again
    if (!tier.writable() || index_full) {
      tier.writes.Remove(generation);
      if (MoveQueued(next)) continue;
      tiers_.GiveUpWriteBack(next.slot, next.parent,
                             absl::UnavailableError("the device takes no writes now"));
      continue;
    }
    const uint64_t bytes = chunk.blocks() * kBlockBytes;
    const uint64_t limit = most_in_flight_bytes_;
    if (!tier.writes.MayBegin(bytes, limit)) return;
    if (space_.EmptyWindow(tier, chunk) == DeviceSpace::Room::kLater) {
      if (chunks_.Spent()) chunks_.PumpLater(tier.pump);
      return;  // else the pump runs again when the removals are committed
    }
    const DeviceSpace::Room in_quota = space_.MakeRoomInQuota(tier, chunk.tenant, chunk.blocks());
    if (in_quota == DeviceSpace::Room::kLater) return chunks_.PumpLater(tier.pump);
    if (in_quota == DeviceSpace::Room::kNone) {
      ++chunks_.tenant_counters[chunk.tenant.value()].g3_quota_refusals;
      tier.writes.Remove(generation);
      tiers_.GiveUpWriteBack(next.slot, next.parent,
                             absl::ResourceExhaustedError("over the tenant's g3_quota"));
      continue;
    }
    if (!space_.EnsureReserve(tier, chunk)) return chunks_.PumpLater(tier.pump);
    if (!space_.Allocate(tier, chunk, chunks_.table.FindParent(chunk, next.parent))) {
      if (tier.commits.freeing_blocks() > 0) return;  // the commit pumps again
      tier.writes.Remove(generation);
      tiers_.GiveUpWriteBack(next.slot, next.parent,
                             absl::ResourceExhaustedError("no space on the device"));
      continue;
    }
    tier.writes.Begin(generation, bytes);
    chunks_.Count(work::kStart);  // only now, so that one that waits costs the other pumps nothing
    StartWrite(next.slot, next.parent);
  }
}

// The device that the chunk is queued for takes no writes now. Returns false if it was not moved.
bool WriteBacker::MoveQueued(const WriteLane::Queued& queued) {
  chunks_.Count(work::kEvict);
  Chunk& chunk = chunks_.table.at(queued.slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kQueued);
  DeviceTier* const to = space_.ChooseDevice(chunk, chunks_.table.FindParent(chunk, queued.parent));
  if (to == nullptr || to->number == chunk.device) return false;
  ++chunks_.counters.write_backs_moved;
  chunk.device = to->number;
  to->writes.Push(chunk.g3_generation, queued, chunk.blocks());
  chunks_.PumpLater(to->pump);
  return true;
}

void WriteBacker::StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(!chunk.g3.empty() && !chunk.detached);
  tiers_.SetState(chunk, G3State::kWriting);
  WriteBack* const write = tiers_.write_backs.BeginWrite(slot, chunk.blocks() * kBlockBytes);
  write->to = &tiers_.of(chunk);
  write->parent = parent;
  write->key = keys_[chunk.tenant.value()];
  chunks_.Later([this, slot, write, g2 = chunk.g2,
                 placement = tiers_.of(chunk).PlacementOf(chunk)] {
    deps_.copy_executor->PostNear(deps_.arena->NodeOf(g2, 0), [this, slot, write, g2, placement] {
      SubmitWrite(slot, write, g2, placement);
    });
  });
}

void WriteBacker::SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                              const ImagePlacement& placement) {
  absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(g2), deps_.mac_key);
  const auto fail = [this, slot, write](const absl::Status& why) {
    write->blames_device = false;
    OnWritten(slot, write, write->bytes, why);
  };
  // The memory went bad. The chunk stays unbacked rather than get a wrong image.
  if (!header.ok()) return fail(header.status());
  write->created_unix_us = header->identity.created_unix_us;
  header->placement = placement;
  if (write->key != nullptr) return SubmitEncrypted(slot, write, g2, *std::move(header));
  write->header_page = std::make_unique<AlignedPage>();
  if (!write->header_page->ok()) return fail(AlignedPage::NoMemory());
  EncodeHeader(*header, write->to->mac_key, write->header_page->span());
  write->root = HeaderRoot(write->header_page->span());
  write->to->Write({.id = header->identity.id,
                    .shape = header->identity.shape,
                    .extents = placement.extents,
                    .header = write->header_page->span(),
                    .from = ArenaImage(deps_.arena, g2),
                    .done = [this, slot, write](uint64_t bytes, absl::Status status) {
                      OnWritten(slot, write, bytes, status);
                    }});
}

void WriteBacker::SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                                  ImageHeader header) {
  header.encryption = ImageCipher::NewEncryption(*write->key, header.identity.shape, deps_.random);
  ImageCipher cipher(*write->key, header.identity, *header.encryption);
  auto encrypted = std::make_shared<EncryptedWrite>(EncryptedWrite::Job{
      .header = std::move(header),
      .cipher = std::move(cipher),
      .mac_key = deps_.mac_key,
      .source = [this, g2](uint64_t offset,
                           uint64_t bytes) { return chunks_.ImageMemory(g2, offset, bytes); },
      .device = &write->to->device->io(),
      .executor = deps_.copy_executor,
      .node = deps_.arena->NodeOf(g2, 0),
      .buffers = cipher_buffers_,
      .heard = [to = write->to] { to->NoteHeard(); },
      .done =
          [this, slot, write](absl::Status status, const Digest128& root) {
            write->root = root;
            OnWritten(slot, write, write->bytes, status);
          }});
  write->blames_device = encrypted->has_memory();
  encrypted->Start();
}

// Takes the lock for the last bytes, for bytes that failed, and if other chunks wait for this
// device. The next chunk's first pieces then follow this one's last, so that the device is never
// idle.
void WriteBacker::OnWritten(ChunkSlot slot, WriteBack* write, uint64_t bytes,
                            const absl::Status& status) {
  DeviceTier& tier = *write->to;
  tier.NoteHeard();
  if (status.ok() && !tier.writes.waited_for() && write->EndSome(bytes)) return;
  chunks_.Prefetch(slot);
  tier.Prefetch();
  std::unique_ptr<WriteBack> done;  // outlives the lock: freeing its page may take time
  Section section(&chunks_);
  WriteBacks::Ended ended = tiers_.write_backs.EndBytes(slot, bytes, status);
  tier.writes.End(ended.bytes);
  done = std::move(ended.write);
  if (done == nullptr) return PumpWrites(tier);

  // Counts one outcome for the chunk, however many of its writes failed.
  if (done->blames_device) tiers_.NoteIo(tier, true, done->failure);
  chunks_.counters.allocation_failures +=
      !done->blames_device && absl::IsUnavailable(done->failure);
  Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kWriting && chunk.device == tier.number);
  if (!done->failure.ok() || chunk.detached) {
    if (!done->failure.ok()) ++chunks_.counters.write_backs_failed;
    tiers_.GiveUpWriteBack(slot, done->parent, done->failure);
  } else {
    TestPoint("data-written");
    if (done->key != nullptr) ++chunks_.counters.write_backs_encrypted;
    tiers_.SetState(chunk, G3State::kCommitting);
    tier.commits.Add({.slot = slot,
                      .record = {.id = chunk.id,
                                 .shape = chunk.shape,
                                 .incarnation = tiers_.incarnations.At(chunk.g3_incarnation),
                                 .generation = chunk.g3_generation,
                                 .created_unix_us = done->created_unix_us,
                                 .root = done->root,
                                 .extents = chunk.g3},
                      .parent = done->parent});
    committer_.PumpIndex(tier);
  }
  PumpWrites(tier);
}

// ---- what G2 alone holds

DeviceTier* WriteBacker::EnqueueUnbacked(ChunkSlot slot) {
  const ChunkSlot near = chunks_.EndUnbackedWait(slot);
  const Chunk& chunk = chunks_.table.at(slot);
  std::optional<ChunkKey> parent;
  if (near != kNoSlot) {
    const Chunk& there = chunks_.table.at(near);
    const bool same = there.id.ns == chunk.id.ns && there.id.part == chunk.id.part;
    if (there.live && !there.detached && same) parent = there.id.key;
  }
  chunks_.Count(work::kRecord);
  return Enqueue(slot, parent, false);
}

void WriteBacker::PumpUnbacked(DeviceTier& tier) {
  if (!tiers_.write_backs.MayOffer(deps_.clock->Now())) return;  // Tick tries again
  for (const auto& own : chunks_.pools) {
    // The loop ends: EnqueueUnbacked takes the first chunk out of the queue. It puts the chunk back
    // only over the budget or if no device takes writes, and both were checked just before.
    while (own->unbacked.first() != kNoSlot) {
      const ChunkSlot slot = own->unbacked.first();
      if (!own->MayBeDirty(chunks_.table.at(slot).blocks())) break;
      if (!tiers_.AnyTakesWrites()) return tiers_.LookAtIndexesAgain();
      if (chunks_.Spent()) return chunks_.PumpLater(tier.pump);
      if (DeviceTier* const to = EnqueueUnbacked(slot); to != nullptr) chunks_.PumpLater(to->pump);
    }
  }
}

void WriteBacker::DrainUnbacked(Section& section) {
  for (const auto& own : chunks_.pools) {
    while (own->unbacked.first() != kNoSlot) {
      DeviceTier* const to = EnqueueUnbacked(own->unbacked.first());
      if (to != nullptr) chunks_.PumpLater(to->pump);
      section.YieldIfSpent();
    }
  }
}

// ---- chunks that are to be durable

void WriteBacker::WriteForWaiters(Section& section) {
  if (!std::exchange(wait_for_device_, false)) return;
  std::optional<ChunkSlot> next = tiers_.durable_waiters.NextFrom(ChunkSlot(0));
  for (; next.has_value(); next = tiers_.durable_waiters.NextFrom(ChunkSlot(next->value() + 1))) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    const Chunk& chunk = chunks_.table.at(*next);
    const bool to_write = tiers_.durable_waiters.Has(*next) && chunk.live && !chunk.detached &&
                          chunk.g3_state == G3State::kAbsent && chunk.resident();
    if (!to_write) continue;
    Queue(*next, std::nullopt, true);
    if (!chunks_.table.at(*next).dirty()) WaitForDevice(*next);
  }
}

void WriteBacker::WaitForDevice(ChunkSlot slot) {
  if (!tiers_.durable_waiters.Has(slot)) return;
  if (tiers_.AnyComes()) {
    wait_for_device_ = true;  // Tick tries again
  } else {
    tiers_.durable_waiters.Fail(slot, absl::UnavailableError("no device takes writes now"));
  }
}

// Each chunk that waits is in its tenant's queue, and each one that G2 alone has is counted.
void WriteBacker::CheckInvariants() const {
  std::vector<uint64_t> waiting(chunks_.pools.size()), waiting_blocks(waiting), chunks(waiting),
      blocks(waiting);
  for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
    const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
    if (!chunk.live || !chunks_.HasPool(chunk.tenant)) continue;
    const bool unbacked =
        !tiers_.empty() && !chunk.detached && chunk.in_g2() && chunk.g3_state == G3State::kAbsent;
    KVKEEP_CHECK(unbacked == chunk.noted_unbacked);
    KVKEEP_CHECK(!chunk.waits_unbacked || (unbacked && chunk.resident()));
    KVKEEP_CHECK(chunk.waits_unbacked == chunks_.pool(chunk).unbacked.Has(ChunkSlot(i)));
    waiting[chunk.tenant.value()] += chunk.waits_unbacked;
    waiting_blocks[chunk.tenant.value()] += chunk.waits_unbacked ? chunk.blocks() : 0;
    chunks[chunk.tenant.value()] += unbacked;
    blocks[chunk.tenant.value()] += unbacked ? chunk.blocks() : 0;
  }
  for (size_t t = 0; t < chunks_.pools.size(); ++t) {
    const G2Pool& own = *chunks_.pools[t];
    KVKEEP_CHECK(own.unbacked_chunks == chunks[t] && own.unbacked_blocks == blocks[t]);
    KVKEEP_CHECK(waiting[t] == own.unbacked.chunks());
    KVKEEP_CHECK(waiting_blocks[t] == own.unbacked.blocks());
  }
}

}  // namespace kvkeep::store_internal
