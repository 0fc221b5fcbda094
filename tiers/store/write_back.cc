// Write-back from G2 to G3, and space in G3.
//
// A write-back goes queued -> writing -> committing -> stored; until stored the G2 copy stays.
// Space comes from removals whose index batch was committed: extents are never reused before that,
// nor before their last reader is done.
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/canary.h"
#include "tiers/store/core.h"
#include "tiers/store/encrypted_write.h"

namespace kvkeep::store_internal {

// Every change of a chunk's G3 state goes through here, so that the dirty accounts are right.
void Core::SetG3State(Chunk& chunk, G3State state) {
  const bool was_dirty = chunk.dirty();
  chunk.g3_state = state;
  if (chunk.dirty() && !was_dirty) {
    pool(chunk).dirty_blocks += chunk.blocks();
    ++dirty_chunks_;
  } else if (!chunk.dirty() && was_dirty) {
    pool(chunk).dirty_blocks -= chunk.blocks();
    --dirty_chunks_;
  }
}

ChunkSlot Core::FindParent(const Chunk& chunk, const std::optional<ChunkKey>& parent) const {
  if (!parent.has_value()) return kNoSlot;
  return table_.Find({chunk.id.ns, *parent, chunk.id.part});
}

// Children next to their parents, so that recalling a prefix is one long read; else where the most
// space is. Nothing when no device takes writes.
std::optional<uint16_t> Core::ChooseDevice(ChunkSlot parent) {
  if (parent != kNoSlot && table_.at(parent).g3_state != G3State::kAbsent) {
    const uint16_t device = table_.at(parent).device;
    if (devices_[device]->writable()) return device;
  }
  std::optional<uint16_t> best;
  uint64_t best_free = 0;
  for (uint16_t d = 0; d < devices_.size(); ++d) {
    const DeviceTier& tier = *devices_[d];
    if (!tier.writable()) continue;
    const uint64_t free = tier.allocator->free_blocks().value() + tier.freeing_blocks;
    // A device with a long queue counts as if that space were gone already.
    const uint64_t queued = tier.write_queue.size() * 256;
    const uint64_t score = free > queued ? free - queued + 1 : 1;
    if (!best.has_value() || score > best_free) {
      best = d;
      best_free = score;
    }
  }
  return best;
}

void Core::QueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced) {
  if (devices_.empty()) return;
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kAbsent && chunk.g2_state == G2State::kResident);
  // Over the budget the newcomer stays unbacked: the queue holds the heads of its prefix.
  const bool over = !pool(chunk).MayBeDirty(chunk.blocks());
  const std::optional<uint16_t> device = ChooseDevice(FindParent(chunk, parent));
  if (!device.has_value() || (over && !forced)) {
    ++counters_.write_backs_cancelled;
    return;
  }
  {
    Change change(this, slot);
    SetG3State(*change, G3State::kQueued);
    change->device = *device;
    change->g3_incarnation = incarnation_;
    change->g3_generation = Generation(next_generation_++);
  }
  devices_[*device]->write_queue.emplace(chunk.g3_generation,
                                         DeviceTier::QueuedWrite{slot, parent});
  PumpWrites(*device);
}

void Core::PumpWrites(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  while (!tier.write_queue.empty()) {
    if (Spent()) return PumpLater(device);
    const auto first = tier.write_queue.begin();
    const DeviceTier::QueuedWrite next = first->second;
    Chunk& chunk = table_.at(next.slot);
    KVKEEP_CHECK(chunk.g3_state == G3State::kQueued && chunk.g3_generation == first->first);
    const bool index_full = deps_.devices[device].device->index_over_budget();
    tier.dirty_index |= index_full;  // the next sync looks again
    if (!tier.writable() || index_full) {
      tier.write_queue.erase(first);
      GiveUpWriteBack(next.slot, absl::UnavailableError("the device takes no writes now"));
      continue;
    }
    const uint64_t bytes = chunk.blocks() * kBlockBytes;
    const uint64_t limit = options_.max_device_writes_in_flight_bytes;
    if (tier.writing_bytes > 0 && tier.writing_bytes + bytes > limit) return;
    if (!EnsureReserve(tier, chunk.blocks())) return PumpLater(device);
    if (!AllocateG3(tier, chunk, FindParent(chunk, next.parent))) {
      if (tier.freeing_blocks > 0) return;  // comes back when the removals are committed
      tier.write_queue.erase(tier.write_queue.begin());
      GiveUpWriteBack(next.slot, absl::ResourceExhaustedError("no space on the device"));
      continue;
    }
    tier.write_queue.erase(tier.write_queue.begin());
    tier.writing_bytes += bytes;
    Count(work::kStart);  // only now: who has to wait takes nothing from the other pumps
    StartWrite(next.slot, next.parent);
  }
}

Core::Evicted Core::EvictOneFromG3(DeviceTier& tier) {
  while (const std::optional<ChunkSlot> victim = tier.policy->Victim()) {
    if (table_.at(*victim).g3_reading) {
      tier.policy->Park(*victim);
      Count(work::kPark);
      if (Spent()) return Evicted::kSpent;
      continue;
    }
    Change chunk(this, *victim);
    ++counters_.g3_evictions;
    RemoveFromG3(*chunk, *victim, EvictionPolicy::EraseReason::kEvicted);
    Count(work::kEvict);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

bool Core::EnsureReserve(DeviceTier& tier, uint64_t blocks) {
  if (blocks > tier.allocator->capacity().value()) return true;  // is about to be refused
  const uint64_t wanted = blocks + tier.reserve_blocks;
  while (tier.allocator->free_blocks().value() + tier.freeing_blocks < wanted) {
    if (EvictOneFromG3(tier) == Evicted::kNone) return true;
    if (Spent()) return false;
  }
  return true;
}

bool Core::AllocateG3(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) {
  const uint64_t blocks = chunk.blocks();
  if (blocks > tier.allocator->capacity().value()) return false;
  std::optional<BlockNumber> near;
  if (parent != kNoSlot && !table_.at(parent).g3.empty() &&
      table_.at(parent).device == chunk.device) {
    near = BlockNumber(table_.at(parent).g3.back().end());
  }
  std::optional<ExtentList> extents = tier.allocator->Allocate(BlockCount(blocks), near);
  if (!extents.has_value()) {
    // Too scattered even for many extents: make more room, for the next attempt.
    if (tier.freeing_blocks < blocks) EvictOneFromG3(tier);
    return false;
  }
  chunk.g3 = *std::move(extents);
  return true;
}

void Core::StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  Chunk& chunk = table_.at(slot);
  SetG3State(chunk, G3State::kWriting);
  auto write = std::make_unique<WriteBack>();
  write->device = chunk.device;
  write->parent = parent;
  write->bytes = chunk.blocks() * kBlockBytes;
  write->key = write_keys_[chunk.tenant.value()];
  const ImagePlacement placement{.tier = Tier::kG3,
                                 .place = deps_.devices[chunk.device].device->uuid(),
                                 .incarnation = chunk.g3_incarnation,
                                 .generation = chunk.g3_generation,
                                 .extents = chunk.g3};
  Later([this, slot, raw = write.get(), g2 = chunk.g2, placement] {
    deps_.copy_executor->Post(
        [this, slot, raw, g2, placement] { SubmitWrite(slot, raw, g2, placement); });
  });
  KVKEEP_CHECK(write_backs_.emplace(slot, std::move(write)).second);
}

void Core::SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                       const ImagePlacement& placement) {
  absl::StatusOr<ImageHeader> header = DecodeHeader(HeaderInArena(g2), deps_.mac_key);
  if (!header.ok()) {  // DRAM went bad: better unbacked than a wrong image
    write->outstanding = 1;
    write->blames_device = false;
    OnWritten(slot, header.status());
    return;
  }
  write->created_unix_us = header->identity.created_unix_us;
  header->placement = placement;
  if (write->key != nullptr) return SubmitEncrypted(slot, write, g2, *std::move(header));
  write->header_page = std::make_unique<AlignedPage>();
  EncodeHeader(*header, deps_.mac_key, write->header_page->span());
  write->root = HeaderRoot(write->header_page->span());

  std::vector<IoOperation> writes;
  const auto add = [&](uint64_t offset, std::byte* data, size_t bytes) {
    writes.push_back(
        {.kind = IoOperation::Kind::kWrite,
         .offset = DeviceOffset(offset),
         .data = data,
         .bytes = bytes,
         .done = [this, slot](absl::Status status) { OnWritten(slot, std::move(status)); }});
  };
  add(placement.extents[0].first.value() * kBlockBytes, write->header_page->bytes, kHeaderBytes);
  const uint64_t end = header->identity.shape.blocks().value() * kBlockBytes;
  for (uint64_t at = kHeaderBytes; at < end;) {
    const uint64_t wanted = std::min<uint64_t>(end - at, kPieceBytes);
    const ByteRun to = LocateInImage(placement.extents, at, wanted);
    const std::span<std::byte> from = ImageMemory(g2, at, to.bytes);
    add(to.tier_offset, from.data(), from.size());
    at += from.size();
  }
  write->outstanding = static_cast<uint32_t>(writes.size());
  Device& device = deps_.devices[write->device].device->io();
  for (IoOperation& operation : writes) device.Submit(std::move(operation));
}

void Core::SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                           ImageHeader header) {
  write->outstanding = 1;  // all of it together
  header.encryption = ImageCipher::NewEncryption(*write->key, header.identity.shape, deps_.random);
  ImageCipher cipher(*write->key, header.identity, *header.encryption);
  std::make_shared<EncryptedWrite>(
      EncryptedWrite::Job{
          .header = std::move(header),
          .cipher = std::move(cipher),
          .mac_key = deps_.mac_key,
          .source = [this, g2](uint64_t offset,
                               uint64_t bytes) { return ImageMemory(g2, offset, bytes); },
          .device = &deps_.devices[write->device].device->io(),
          .executor = deps_.copy_executor,
          .buffer_bytes = cipher_buffer_bytes_,
          .heard =
              [this, device = write->device] {
                Section section(this);
                devices_[device]->heard = true;
              },
          .done =
              [this, slot, write](absl::Status status, const Digest128& root) {
                write->root = root;
                OnWritten(slot, std::move(status));
              }})
      ->Start();
}

void Core::OnWritten(ChunkSlot slot, absl::Status status) {
  std::unique_ptr<WriteBack> done;  // outlives the lock: freeing its page may take time
  Section section(this);
  const auto found = write_backs_.find(slot);
  KVKEEP_CHECK(found != write_backs_.end() && found->second->outstanding > 0);
  WriteBack& write = *found->second;
  DeviceTier& tier = *devices_[write.device];
  tier.heard = true;
  write.failure.Update(status);
  if (--write.outstanding > 0) return;

  done = std::move(found->second);
  write_backs_.erase(found);
  // Once a chunk, however many of its writes failed.
  if (done->blames_device) NoteIo(tier, true, done->failure);
  tier.writing_bytes -= done->bytes;
  Chunk& chunk = table_.at(slot);
  if (!done->failure.ok() || chunk.detached) {
    if (!done->failure.ok()) ++counters_.write_backs_failed;
    GiveUpWriteBack(slot, done->failure);
  } else {
    TestPoint("data-written");
    if (done->key != nullptr) ++counters_.write_backs_encrypted;
    SetG3State(chunk, G3State::kCommitting);
    tier.adds.push_back({.slot = slot,
                         .record = {.id = chunk.id,
                                    .shape = chunk.shape,
                                    .incarnation = chunk.g3_incarnation,
                                    .generation = chunk.g3_generation,
                                    .created_unix_us = done->created_unix_us,
                                    .root = done->root,
                                    .extents = chunk.g3},
                         .parent = done->parent});
    PumpIndex(done->device);
  }
  PumpWrites(done->device);
}

void Core::GiveUpWriteBack(ChunkSlot slot, const absl::Status& why) {
  Count(work::kEvict);
  ++counters_.write_backs_cancelled;
  FailDurableWaiters(slot, why.ok() ? absl::NotFoundError("the chunk was deleted") : why);
  Change chunk(this, slot);
  if (!chunk->g3.empty()) devices_[chunk->device]->allocator->Free(chunk->g3);
  chunk->g3.clear();
  SetG3State(*chunk, G3State::kAbsent);
}

void Core::RemoveFromG3(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.g3_reading);
  DeviceTier& tier = *devices_[chunk.device];
  if (chunk.in_g3_policy) tier.policy->OnErase(slot, reason);
  chunk.in_g3_policy = false;
  if (Planted(Canary::kReuseBeforeRemoval)) {
    tier.allocator->Free(chunk.g3);
    chunk.g3.clear();
  }
  tier.freeing_blocks += TotalBlocks(chunk.g3).value();
  tier.removes.push_back({chunk.id, std::move(chunk.g3)});
  chunk.g3.clear();
  chunk.unconfirmed = chunk.doubtful = false;  // that was about the record
  SetG3State(chunk, G3State::kAbsent);
  --tier.chunks;
  if (!tier.committing) PumpLater(chunk.device);  // many may go in one hold: one batch for them
}

}  // namespace kvkeep::store_internal
