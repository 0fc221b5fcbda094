#include "tiers/store/beyond.h"

#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/encrypted_image.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {

Beyond::Beyond(Chunks* chunks, RemoteTier* remote, const StoreDeps& deps,
               std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers,
               uint64_t write_bytes_per_second)
    : chunks_(*chunks),
      remote_(*remote),
      deps_(deps),
      keys_(std::move(keys)),
      cipher_buffers_(std::move(buffers)),
      writes_(write_bytes_per_second > 0 && remote->keeps()) {}

// ---- what is offered

void Beyond::OfferPut(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool wanted) {
  if (!wanted) {
    chunks_.table.at(slot).beyond = RemoteAges::kNever;
    return;
  }
  if (remote_.unused.empty()) return Offer(slot, parent);
  KVKEEP_CHECK(slot.value() < remote_.unused.size() && !remote_.unused[slot.value()]);
  remote_.unused[slot.value()] = true;
}

// Offers the head first, so that the chunks of a prompt that are there are a prefix of it.
void Beyond::OfferUsed(Section& section, const ChunkSet& chunks,
                       std::span<const EvictionPolicy::ChainLink> found, RemoteAges::Mark now) {
  const size_t parts = chunks.parts.size();
  for (size_t i = 0; i < found.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    const ChunkSlot slot = found[i].slot;
    if (slot == kNoSlot || !remote_.WantsUsed(slot, chunks_.table.at(slot), now)) continue;
    const ChunkId id{chunks.ns, chunks.keys[i / parts], chunks.parts[i % parts]};
    if (!chunks_.table.StillIs(slot, id) || !chunks_.table.at(slot).resident()) continue;
    if (remote_.awaits_use(slot)) {
      remote_.EndWait(slot);
      std::optional<ChunkKey> parent;
      if (i >= parts) parent = chunks.keys[i / parts - 1];
      Offer(slot, parent);
    } else {
      OfferToRefresh(slot);
    }
  }
}

void Beyond::Offer(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  if (!writes_) return;
  Chunk& chunk = chunks_.table.at(slot);
  ++remote_.counters.offered_chunks;
  RemoteWrites::Offered offered{
      .id = chunk.id, .tenant = chunk.tenant, .bytes = chunk.blocks() * kBlockBytes};
  if (parent.has_value()) offered.parent = {chunk.id.ns, *parent, chunk.id.part};
  if (!remote_.writes.Offer(offered)) {
    ++remote_.counters.dropped_chunks;
    remote_.SetUnwritten(slot, true);
    return;
  }
  chunk.beyond = RemoteAges::kUnderWay;
  PumpLater();
}

void Beyond::OfferToRefresh(ChunkSlot slot) {
  Chunk& chunk = chunks_.table.at(slot);
  ++remote_.counters.aged_chunks;
  if (!remote_.ages.Offer(chunk.id)) {
    ++remote_.counters.dropped_refreshes;
    return;
  }
  chunk.beyond = RemoteAges::kUnderWay;
  PumpLater();
}

void Beyond::SetWriteRate(uint64_t bytes_per_second) {
  writes_ = bytes_per_second > 0 && remote_.keeps();
  remote_.write_rate = TokenBucket(bytes_per_second);
}

void Beyond::BeginDrain(Section& section, bool writes) {
  stopped_ = !writes;
  for (uint32_t i = 0; writes && i < chunks_.table.slot_end(); ++i) {
    if (remote_.unwritten_chunks() == 0) break;
    const ChunkSlot slot(i);
    if (remote_.unwritten(slot) && chunks_.table.at(slot).resident()) {
      remote_.EndWait(slot);
      Offer(slot, std::nullopt);
    }
    chunks_.Count(work::kLook);
    section.YieldIfSpent();
  }
  PumpLater();
}

// ---- what is sent

void Beyond::Tick() {
  remote_.removals.Tend();
  remote_.journal.Tend();
  PumpLogged();
  Pump();
}

void Beyond::Pump() {
  // Images beyond the node outlive this process, and stay as they are.
  if (stopped_) return;
  if (!PumpRemovals()) return PumpLater();
  PumpAges();
  PumpWrites();
}

// Sends removals even to a full place, which gets room by them. Returns false if the hold is spent.
bool Beyond::PumpRemovals() {
  // A removal waits until the writes and reads of its image have ended.
  const auto in_use = [this](const ChunkId& id) {
    return remote_.writes.IsWriting(id) || remote_.recalling.contains(id);
  };
  while (remote_.removable()) {
    const std::optional<ChunkId> id = remote_.removals.Next(
        in_use, [this](const ChunkId& of) { return remote_.source().TakeQuestion(of.ns); });
    if (!id.has_value()) break;
    chunks_.Count(work::kStart);
    chunks_.Later([this, id = *id] {
      remote_.source().Remove(
          id, [this, id](const absl::Status& status) { OnRemoved(id, status); });
    });
    if (chunks_.Spent()) return false;
  }
  return true;
}

// Asks for ages. These are fewer than writes, so that new chunks always find room in the queue.
void Beyond::PumpAges() {
  while (remote_.ages.MayAsk() && remote_.writes.has_room_for_old() && remote_.removable() &&
         remote_.source().may_ask_age()) {
    if (chunks_.Spent()) return PumpLater();
    chunks_.Count(work::kStart);
    chunks_.Later([this, id = remote_.ages.Next()] {
      remote_.source().Age(id, [this, id](const absl::StatusOr<std::chrono::seconds>& age) {
        OnAge(id, age);
      });
    });
  }
}

void Beyond::PumpWrites() {
  const MonotonicTime now = deps_.clock->Now();
  while (remote_.writes.anyone_waits() && remote_.writable()) {
    if (chunks_.Spent()) return PumpLater();
    if (remote_.write_rate.Wait(now).has_value()) return;  // Tick tries again
    chunks_.Count(work::kFind);
    const RemoteWrites::Offered next = remote_.writes.next();
    const ChunkSlot slot = chunks_.table.Find(next.id);
    const bool there = slot != kNoSlot && chunks_.table.at(slot).resident() &&
                       !remote_.writes.IsMissing(next.parent);
    if (!there || chunks_.table.at(slot).sending) {
      if (slot != kNoSlot && !there) {
        chunks_.table.at(slot).beyond = RemoteAges::kUnknown;
        if (!next.replace) remote_.SetUnwritten(slot, true);
      }
      if (!there) remote_.writes.NoteMissing(next.id);
      ++(next.replace ? remote_.counters.dropped_refreshes : remote_.counters.dropped_chunks);
      remote_.writes.Pop();
      continue;
    }
    const uint64_t bytes = chunks_.table.at(slot).blocks() * kBlockBytes;
    if (!remote_.writes.MayBegin(bytes)) return;
    remote_.writes.Pop();
    remote_.write_rate.Take(bytes);
    chunks_.Count(work::kStart);
    StartWrite({slot, next, remote_.source().epoch()});
  }
}

// The chunk may be gone by now, or another chunk that is on its way there itself.
void Beyond::OnAge(const ChunkId& id, const absl::StatusOr<std::chrono::seconds>& age) {
  Section section(&chunks_);
  remote_.ages.End();
  const ChunkSlot slot = chunks_.table.Find(id);
  const bool told = age.ok() || absl::IsNotFound(age.status());
  if (told) PumpLater();  // if not, the next tick goes on: the source may not take questions now
  if (slot == kNoSlot || !told) {
    if (slot != kNoSlot) chunks_.table.at(slot).beyond = RemoteAges::kUnknown;  // asked at its use
    ++remote_.counters.dropped_refreshes;
    return;
  }
  Chunk& chunk = chunks_.table.at(slot);
  if (age.ok()) chunk.beyond = remote_.ages.Of(*age, deps_.clock->Now());
  if (age.ok() && chunk.beyond != RemoteAges::kUnknown) {
    ++remote_.counters.young_chunks;
  } else if (remote_.writes.Offer({.id = id,
                                   .tenant = chunk.tenant,
                                   .bytes = chunk.blocks() * kBlockBytes,
                                   .replace = age.ok()})) {
    chunk.beyond = RemoteAges::kUnderWay;
  } else {
    chunk.beyond = RemoteAges::kUnknown;
    ++remote_.counters.dropped_refreshes;
  }
}

// ---- writes under way

void Beyond::StartWrite(RemoteWrites::Sent sent) {
  const ChunkSlot slot = sent.slot;
  const Chunk& chunk = chunks_.table.at(slot);
  // `sending` keeps its bytes, as a pin does, but does not count for what leases may hold.
  KVKEEP_CHECK(!chunk.sending && chunk.resident());
  Change(&chunks_, slot)->sending = true;
  const uint64_t bytes = chunk.blocks() * kBlockBytes;
  remote_.writes.Begin(chunk.id, bytes);
  chunks_.Later([this, sent, bytes, g2 = chunk.g2, key = keys_[chunk.tenant.value()],
                 placement = remote_.PlacementOf(chunk)] {
    deps_.copy_executor->PostNear(deps_.arena->NodeOf(g2, 0), [this, sent, bytes, g2, key,
                                                               placement] {
      absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(g2), deps_.mac_key);
      // The memory went bad. No image there is better than a wrong one.
      if (!header.ok()) return OnWritten(sent, bytes, header.status());
      header->placement = placement;
      SubmitWrite(sent, ArenaImage(deps_.arena, g2), *std::move(header), *key);
    });
  });
}

void Beyond::SubmitWrite(RemoteWrites::Sent sent, ArenaImage image, ImageHeader header,
                         const DataKey& key) {
  const ChunkId id = header.identity.id;
  const ImageShape shape = header.identity.shape;
  const auto encrypted = EncryptedImage::Make(std::move(header), key, image, remote_.mac_key,
                                              *cipher_buffers_, deps_.random);
  if (!encrypted.ok()) {
    return OnWritten(sent, shape.blocks().value() * kBlockBytes, encrypted.status());
  }
  const std::shared_ptr<const EncryptedImage>& bytes = *encrypted;  // kept until the end
  remote_.Write({.id = id,
                 .shape = shape,
                 .extents = {},
                 .header = bytes->header(),
                 .from = [bytes](uint64_t offset,
                                 uint64_t most) { return bytes->Run(offset, most); },
                 .done =
                     [this, sent, bytes](uint64_t ended, const absl::Status& status) {
                       OnWritten(sent, ended, status);
                     },
                 .replace = sent.what.replace,
                 .epoch = sent.epoch});
}

void Beyond::OnWritten(RemoteWrites::Sent sent, uint64_t bytes, const absl::Status& status) {
  Section section(&chunks_);
  RemoteCounters& counters = remote_.counters;
  Chunk& chunk = chunks_.table.at(sent.slot);
  KVKEEP_CHECK(chunk.sending);  // so the chunk is still in that slot
  remote_.writes.End(chunk.id, bytes);
  const bool failed = !status.ok() && !absl::IsAlreadyExists(status);
  if (failed) {
    ++counters.failed_writes;
    remote_.writes.NoteMissing(chunk.id);
  } else {
    ++(sent.what.replace ? counters.refreshed_chunks : counters.written_chunks);
    (sent.what.replace ? counters.refreshed_bytes : counters.written_bytes) +=
        chunk.shape.payload_bytes;
  }
  // If an image was there already, nobody has told its age.
  chunk.beyond = status.ok() ? remote_.ages.At(deps_.clock->Now()) : RemoteAges::kUnknown;
  const ChunkId id = chunk.id;
  Change(&chunks_, sent.slot)->sending = false;
  // Offers it again, unless it was deleted meanwhile.
  if (failed && !sent.what.replace && chunks_.table.Find(id) == sent.slot &&
      remote_.OfferAgain(sent)) {
    chunks_.table.at(sent.slot).beyond = RemoteAges::kUnderWay;
  }
  PumpLater();
}

// ---- removals

void Beyond::Remove(const ChunkId& id, RemoteRemovals::Why why) {
  chunks_.Count(work::kFind);
  if (!remote_.keeps()) return remote_.removals.AddGone(id);
  if (remote_.removals.Add(id, why)) remote_.journal.Deleted(id);
  PumpLater();
}

void Beyond::WhenNoted(bool durable, StatusCallback done) {
  if (!remote_.keeps()) return chunks_.CallLater(std::move(done), absl::OkStatus());
  remote_.journal.Wait(durable, std::move(done));
  PumpLogged();
}

void Beyond::PumpLogged() {
  std::optional<RemovalJournal::Writing> next = remote_.journal.Take();
  if (!next.has_value()) return;
  const auto ended = [this](const absl::Status& status) {
    Section section(&chunks_);
    if (!status.ok()) ++remote_.counters.failed_removal_notes;
    remote_.journal.End(status, chunks_.hold);
    PumpLogged();
  };
  chunks_.Later([log = remote_.journal.log(), next = *std::move(next), ended]() mutable {
    if (log == nullptr) return ended(absl::OkStatus());
    log->Write(std::move(next.notes), next.sync, ended);
  });
}

void Beyond::OnRemoved(const ChunkId& id, const absl::Status& status) {
  Section section(&chunks_);
  ++(status.ok() ? remote_.counters.removed_chunks : remote_.counters.failed_removals);
  if (remote_.removals.End(id, status.ok())) remote_.journal.Ended(id);
  PumpLogged();
  PumpLater();
}

}  // namespace kvkeep::store_internal
