// Write-back from G2 to G3.
//
// A write-back goes queued -> writing -> committing -> stored; until stored the G2 copy stays. Its
// space comes from g3_space.cc.
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/core.h"
#include "tiers/store/guarded_header.h"
#include "tiers/store/encrypted_write.h"

namespace kvkeep::store_internal {
namespace {

// A write-back goes on step by step, and may be given up at any of them. What a record says is
// stored is so at once.
constexpr bool MayBecome(G3State from, G3State to) {
  using enum G3State;
  switch (from) {
    case kAbsent:
      return to == kQueued || to == kStored;
    case kQueued:
      return to == kWriting || to == kAbsent;
    case kWriting:
      return to == kCommitting || to == kAbsent;
    case kCommitting:
      return to == kStored || to == kAbsent;
    case kStored:
      return to == kAbsent;
  }
  return false;
}

}  // namespace

// Every change of a chunk's G3 state goes through here, so that the dirty accounts are right.
void Core::SetG3State(Chunk& chunk, G3State state) {
  KVKEEP_CHECK(MayBecome(chunk.g3_state, state));
  const bool was_dirty = chunk.dirty();
  chunk.g3_state = state;
  KVKEEP_CHECK(!chunk.dirty() || chunk.resident());
  if (chunk.dirty() && !was_dirty) {
    pool(chunk).dirty_blocks += chunk.blocks();
    write_backs_.Begin(chunk.g3_generation, deps_.clock->Now());
  } else if (!chunk.dirty() && was_dirty) {
    KVKEEP_CHECK(pool(chunk).dirty_blocks >= chunk.blocks());
    pool(chunk).dirty_blocks -= chunk.blocks();
    write_backs_.End(chunk.g3_generation);
  }
}

// Whether the chunk is worth its write. No: it is asked about again when it is used.
bool Core::Admit(Chunk& chunk) {
  AdmissionPolicy& admission = *admissions_[chunk.tenant.value()];
  const uint64_t bytes = chunk.blocks() * kBlockBytes;
  const bool admitted = admission.Admit(table_.fingerprint(chunk.id), bytes, deps_.clock->Now());
  chunk.unadmitted = !admitted;
  if (admitted) return true;
  const bool budget = admission.name() == "write_budget";
  ++(budget ? counters_.write_budget_refusals : counters_.second_use_refusals);
  (budget ? counters_.write_budget_refused_bytes : counters_.second_use_refused_bytes) += bytes;
  return false;
}

void Core::QueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced) {
  DeviceTier* const to = EnqueueWriteBack(slot, parent, forced);
  if (to != nullptr) PumpWrites(*to);
}

DeviceTier* Core::EnqueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                                   bool forced) {
  if (devices_.empty()) return nullptr;
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kAbsent && chunk.resident());
  KVKEEP_CHECK(chunk.live && !chunk.detached);
  // Over the budget the newcomer stays unbacked for now: the queue holds the heads of its prefix.
  const bool over = !draining_ && !pool(chunk).MayBeDirty(chunk.blocks());
  const ChunkSlot near = table_.FindParent(chunk, parent);
  DeviceTier* const to = ChooseDevice(chunk, near);
  if (to == nullptr || (over && !forced)) {
    ++counters_.write_backs_cancelled;
    WaitUnbacked(slot, near);
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
    change->g3_incarnation = *incarnations_.Add(incarnation_);
    change->g3_generation = chunks_.NextGeneration();
    SetG3State(*change, G3State::kQueued);
  }
  to->writes.Push(chunk.g3_generation, {slot, parent}, chunk.blocks());
  return to;
}

void Core::PumpWrites(DeviceTier& tier) {
  while (tier.writes.anyone_waits()) {
    if (Spent()) return PumpLater(tier);
    const auto [generation, next] = tier.writes.next();
    Chunk& chunk = table_.at(next.slot);
    KVKEEP_CHECK(chunk.g3_state == G3State::kQueued && chunk.g3_generation == generation);
    const bool index_full = tier.device->index_over_budget();
    if (index_full) tier.syncs.NoteDirty();  // the next sync looks again
    if (!tier.writable() || index_full) {
      tier.writes.Remove(generation);
      if (MoveQueued(next)) continue;
      GiveUpWriteBack(next.slot, next.parent,
                      absl::UnavailableError("the device takes no writes now"));
      continue;
    }
    const uint64_t bytes = chunk.blocks() * kBlockBytes;
    const uint64_t limit = options_.max_device_writes_in_flight_bytes;
    if (!tier.writes.MayBegin(bytes, limit)) return;
    const Room in_quota = MakeRoomInQuota(tier, chunk.tenant, chunk.blocks());
    if (in_quota == Room::kLater) return PumpLater(tier);
    if (in_quota == Room::kNone) {
      ++tenant_counters_[chunk.tenant.value()].g3_quota_refusals;
      tier.writes.Remove(generation);
      GiveUpWriteBack(next.slot, next.parent,
                      absl::ResourceExhaustedError("over the tenant's g3_quota"));
      continue;
    }
    if (!EnsureReserve(tier, chunk)) return PumpLater(tier);
    if (!AllocateG3(tier, chunk, table_.FindParent(chunk, next.parent))) {
      if (tier.commits.freeing_blocks() > 0) return;  // comes back when the removals are committed
      tier.writes.Remove(generation);
      GiveUpWriteBack(next.slot, next.parent,
                      absl::ResourceExhaustedError("no space on the device"));
      continue;
    }
    tier.writes.Begin(generation, bytes);
    Count(work::kStart);  // only now: who has to wait takes nothing from the other pumps
    StartWrite(next.slot, next.parent);
  }
}

// It was queued for a device that takes no writes now. False: no other one does.
bool Core::MoveQueued(const WriteLane::Queued& queued) {
  Count(work::kEvict);
  Chunk& chunk = table_.at(queued.slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kQueued);
  DeviceTier* const to = ChooseDevice(chunk, table_.FindParent(chunk, queued.parent));
  if (to == nullptr || to->number == chunk.device) return false;
  if (to->device->index_over_budget()) return false;
  ++counters_.write_backs_moved;
  chunk.device = to->number;
  to->writes.Push(chunk.g3_generation, queued, chunk.blocks());
  PumpLater(*to);
  return true;
}

void Core::StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(!chunk.g3.empty() && !chunk.detached);
  SetG3State(chunk, G3State::kWriting);
  WriteBack* const write =
      write_backs_.BeginWrite(slot, {.to = devices_[chunk.device].get(),
                                     .parent = parent,
                                     .key = write_keys_[chunk.tenant.value()],
                                     .bytes = chunk.blocks() * kBlockBytes});
  Later([this, slot, write, g2 = chunk.g2,
         placement = devices_[chunk.device]->PlacementOf(chunk)] {
    deps_.copy_executor->Post(
        [this, slot, write, g2, placement] { SubmitWrite(slot, write, g2, placement); });
  });
}

void Core::SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                       const ImagePlacement& placement) {
  absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(g2), deps_.mac_key);
  const auto fail = [this, slot, write](absl::Status why) {
    write->blames_device = false;
    OnWritten(slot, write->bytes, std::move(why));
  };
  // DRAM went bad: better unbacked than a wrong image.
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
                    .done = [this, slot](uint64_t bytes, absl::Status status) {
                      OnWritten(slot, bytes, std::move(status));
                    }});
}

void Core::SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                           ImageHeader header) {
  header.encryption = ImageCipher::NewEncryption(*write->key, header.identity.shape, deps_.random);
  ImageCipher cipher(*write->key, header.identity, *header.encryption);
  auto encrypted = std::make_shared<EncryptedWrite>(
      EncryptedWrite::Job{
          .header = std::move(header),
          .cipher = std::move(cipher),
          .mac_key = deps_.mac_key,
          .source = [this, g2](uint64_t offset,
                               uint64_t bytes) { return chunks_.ImageMemory(g2, offset, bytes); },
          .device = &write->to->device->io(),
          .executor = deps_.copy_executor,
          .buffers = cipher_buffers_,
          .heard = [to = write->to] { to->NoteHeard(); },
          .done =
              [this, slot, write](absl::Status status, const Digest128& root) {
                write->root = root;
                OnWritten(slot, write->bytes, std::move(status));
              }});
  write->blames_device = encrypted->has_memory();
  encrypted->Start();
}

void Core::OnWritten(ChunkSlot slot, uint64_t bytes, absl::Status status) {
  std::unique_ptr<WriteBack> done;  // outlives the lock: freeing its page may take time
  Section section(&chunks_);
  DeviceTier& tier = *write_backs_.at(slot).to;
  tier.NoteHeard();
  tier.writes.End(bytes);
  done = write_backs_.EndBytes(slot, bytes, status);
  // The next chunk's first pieces follow this one's last: the device is never without work.
  if (done == nullptr) return PumpWrites(tier);

  // Once a chunk, however many of its writes failed.
  if (done->blames_device) NoteIo(tier, true, done->failure);
  counters_.allocation_failures += !done->blames_device && absl::IsUnavailable(done->failure);
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kWriting && chunk.device == tier.number);
  if (!done->failure.ok() || chunk.detached) {
    if (!done->failure.ok()) ++counters_.write_backs_failed;
    GiveUpWriteBack(slot, done->parent, done->failure);
  } else {
    TestPoint("data-written");
    if (done->key != nullptr) ++counters_.write_backs_encrypted;
    SetG3State(chunk, G3State::kCommitting);
    tier.commits.Add({.slot = slot,
                      .record = {.id = chunk.id,
                                 .shape = chunk.shape,
                                 .incarnation = incarnations_.At(chunk.g3_incarnation),
                                 .generation = chunk.g3_generation,
                                 .created_unix_us = done->created_unix_us,
                                 .root = done->root,
                                 .extents = chunk.g3},
                      .parent = done->parent});
    PumpIndex(tier);
  }
  PumpWrites(tier);
}

void Core::GiveUpWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                           const absl::Status& why) {
  Count(work::kEvict);
  ++counters_.write_backs_cancelled;
  durable_waiters_.Fail(slot, why.ok() ? absl::NotFoundError("the chunk was deleted") : why);
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(chunk->dirty());
  if (!chunk->g3.empty()) {
    devices_[chunk->device]->allocator->Free(chunk->g3);
    g3_shares_.Give(chunk->tenant, chunk->blocks());
  }
  chunk->g3.clear();
  SetG3State(*chunk, G3State::kAbsent);
  if (absl::IsUnavailable(why) || IsHostShort(why)) WaitAgain(slot, parent);
}

}  // namespace kvkeep::store_internal
