// Reads, and promotion from G3 to G2: single flight per chunk, verified and ready piece by piece.
//
// An encrypted image is decrypted on the way (decrypt.cc), in units of some pieces.
// The header is read into a page of its own together with the payload; pieces wait for it to be
// verified against. The arena's own header is written last, when every piece is good.
#include <absl/strings/str_cat.h>

#include <cstring>

#include "tiers/base/check.h"
#include "tiers/base/memory_errors.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/canary.h"
#include "tiers/store/core.h"
#include "tiers/store/guarded_header.h"
#include "tiers/store/wanted.h"

namespace kvkeep::store_internal {

absl::StatusOr<bool> Core::IsPaid(const SessionToken& token, LeaseId lease) const {
  if (lease.value() == 0) return false;
  const Lease* const held = leases_.Find(token, lease);
  if (held != nullptr) return held->paid;
  return absl::FailedPreconditionError("lease_id is not of a lease of this session");
}

absl::Status Core::ChargeRead(Session& session, bool leased) {
  KVKEEP_RETURN_IF_ERROR(sessions_.AskRates(session, !leased, true));
  if (!leased) sessions_.ChargeKeys(session, 1);
  return absl::OkStatus();
}

absl::StatusOr<ReadResult> Core::Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                      bool transient) {
  ReadResult result;
  Section section(this);
  absl::StatusOr<Session*> session = sessions_.Find(token);
  if (!session.ok()) return session.status();
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckGrant(**session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR((*session)->FindNamespace(id.ns).status());
  const TenantId tenant = (*session)->tenant();
  const absl::StatusOr<bool> paid = IsPaid(token, lease);
  if (!paid.ok()) return paid.status();
  ChunkSlot slot = table_.Find(id);
  if (lease.value() != 0) {
    // Leased chunks have their space in G2, so the one found is another, put after a delete; or
    // there is none any more. Rare, so a walk will do.
    if (slot == kNoSlot || !table_.at(slot).has_g2_space()) {
      const ChunkSlot leased = FindInLease(section, token, lease, id);
      slot = leased != kNoSlot ? leased : table_.Find(id);
      session = sessions_.Find(token);  // the walk may have yielded
      if (!session.ok()) return session.status();
    }
  }
  // What nobody has pinned is not what the lease holds, whatever lease is named.
  const bool leased = lease.value() != 0 && slot != kNoSlot && table_.at(slot).pins > 0;
  const bool costs_bytes = !leased || !*paid;
  absl::Status in_time = costs_bytes ? ChargeRead(**session, leased) : absl::OkStatus();
  if (!in_time.ok()) return in_time;
  if (!leased) NoteWanted(id);  // what a lease holds was asked for when it was granted
  if (slot == kNoSlot || !(table_.at(slot).has_g2_space() || InG3(table_.at(slot)))) {
    ++counters_.read_misses;
    return result;
  }
  result.from_g3 = !table_.at(slot).in_g2();
  if (table_.at(slot).g2_state == G2State::kReading) ++counters_.promotions_shared;
  const TenantId owner = OwnerOf(id.ns);
  const bool lent = owner != tenant && !leased;  // leased, it was counted when it was
  if (lent && !pool(owner).MayLend(table_.at(slot).blocks())) {
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  const uint32_t yields = section.yields();
  if (!EnsureInG2(section, {tenant, token}, owner, slot, kNoSlot, transient)) {
    const bool gone = section.yields() != yields && !StillIs(slot, id);
    if (gone || table_.at(slot).g2_state == G2State::kFailed) {
      ++counters_.read_misses;
      return result;
    }
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  Pin(slot);
  if (costs_bytes) CountRead(token, tenant, table_.at(slot), result.from_g3);
  if (lent) pool(owner).lent_blocks += table_.at(slot).blocks();
  result.outcome = ReadOutcome::kHit;
  result.reader.core_ = this;
  result.reader.slot_ = slot.value();
  result.reader.lent_ = lent;
  result.reader.shape_ = table_.at(slot).shape;
  result.reader.extents_ = table_.at(slot).g2;
  return result;
}

void Core::NoteWanted(const ChunkId& id) {
  const EvictionPolicy::ChainLink asked{.fingerprint = table_.fingerprint(id)};
  if (!life_.Sampled(asked.fingerprint)) return;
  life_.OnWanted(std::span(&asked, 1), deps_.clock->Now());
}

void Core::CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, bool from_g3) {
  sessions_.ChargeBytes(tenant, token, chunk.shape.payload_bytes);
  Served served;
  served.Add(from_g3, chunk.shape.payload_bytes);
  // The session may have been closed while the lock was let go of.
  CountServed(sessions_.FindOrNull(token), chunk.id.ns, served);
}

ChunkSlot Core::FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                            const ChunkId& id) {
  for (size_t i = 0;; ++i) {
    section.YieldIfSpent();
    Count(work::kFind);
    const Lease* const held = leases_.Find(token, lease);
    if (held == nullptr || i >= held->entries.size()) return kNoSlot;
    const ChunkSlot slot = held->entries[i].slot;
    if (table_.at(slot).id == id) return slot;
  }
}

void Core::WhenReady(ChunkSlot slot, size_t first, size_t count, StatusCallback ready) {
  Section section(this);
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.pins > 0);
  KVKEEP_CHECK(first <= chunk.shape.pieces() && count <= chunk.shape.pieces() - first);
  if (chunk.g2_state == G2State::kResident) {
    CallLater(std::move(ready), absl::OkStatus());
    return;
  }
  if (chunk.g2_state == G2State::kFailed) {
    CallLater(std::move(ready), absl::DataLossError("the chunk was damaged on its device"));
    return;
  }
  Promotion& promotion = *promotions_.at(slot);
  const auto is_ready = [&promotion](size_t piece) { return promotion.IsReady(piece); };
  bool all = first + count < promotion.pieces.size() || promotion.header_there;
  for (size_t piece = first; all && piece < first + count; ++piece) all = is_ready(piece);
  Count(static_cast<uint32_t>(work::kLook * count));
  if (all || !promotion.failure.ok()) {
    CallLater(std::move(ready), all ? absl::OkStatus() : promotion.failure);
    return;
  }
  promotion.waiters.Add(first, first + count, is_ready, std::move(ready));
}

std::vector<uint64_t> Core::PieceChecksums(ChunkSlot slot, const ExtentList& extents) {
  {
    Section section(this);
    const auto promotion = promotions_.find(slot);
    if (promotion != promotions_.end()) {
      KVKEEP_CHECK(promotion->second->header != nullptr);
      return promotion->second->header->identity.piece_checksums;
    }
    // Its header was never written: that page holds what lay there before, perhaps a valid header.
    if (table_.at(slot).g2_state == G2State::kFailed) return {};
  }
  // Resident: the arena's header page is final. A damaged one (DRAM) yields no checksums.
  absl::StatusOr<ImageHeader> header = DecodeGuarded(HeaderInArena(extents), deps_.mac_key);
  if (!header.ok()) return {};
  return std::move(header->identity.piece_checksums);
}

void Core::StartPromotion(const ReadQueue::Asker& asker, ChunkSlot slot) {
  Chunk& chunk = table_.at(slot);
  DeviceTier& tier = *devices_[chunk.device];
  auto promotion = std::make_unique<Promotion>(chunk.shape.pieces());
  promotion->device = chunk.device;
  promotion->asker = asker;
  promotion->waits = true;
  promotion->bytes = chunk.blocks() * kBlockBytes;
  tier.read_speed.OnStart(promotion->bytes, deps_.clock->Now());
  promotions_[slot] = std::move(promotion);
  chunk.g3_reading = true;
  ++counters_.promotions;
  tier.read_queue.Push(asker, slot, promotions_.at(slot)->bytes);
  PumpReads(chunk.device);
}

void Core::PumpReads(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  while (!tier.read_queue.empty()) {
    if (Spent()) return PumpLater(device);
    const ChunkSlot slot = tier.read_queue.front();
    Promotion& promotion = *promotions_.at(slot);
    const uint64_t limit = options_.max_device_reads_in_flight_bytes;
    if (tier.reading_bytes > 0 && tier.reading_bytes + promotion.bytes > limit) return;
    Count(work::kStart);  // only now: who has to wait takes nothing from the other pumps
    tier.reading_bytes += promotion.bytes;
    tier.read_queue.Pop();
    promotion.waits = false;
    for (const Extent& extent : table_.at(slot).g3) {
      counters_.promotion_runs += extent.first.value() != tier.read_up_to;
      tier.read_up_to = extent.end();
    }
    IssueReads(slot, promotion);
  }
}

void Core::IssueReads(ChunkSlot slot, Promotion& promotion) {
  const Chunk& chunk = table_.at(slot);
  std::vector<IoOperation> reads;
  AlignedPage* const page = &promotion.header_page;
  if (!page->ok()) {  // then nothing is read, and the chunk stays what it is
    ++counters_.allocation_failures;
    promotion.outstanding = 1;
    return Later([this, slot, page] { OnHeaderRead(slot, page, AlignedPage::NoMemory()); });
  }
  reads.push_back({.kind = IoOperation::Kind::kRead,
                   .offset = DeviceOffset(chunk.g3[0].first.value() * kBlockBytes),
                   .data = page->bytes,
                   .bytes = kHeaderBytes,
                   .done = [this, slot, page](absl::Status status) {
                     OnHeaderRead(slot, page, std::move(status));
                   }});
  const uint64_t image_end = chunk.blocks() * kBlockBytes;
  for (size_t piece = 0; piece < promotion.pieces.size(); ++piece) {
    uint64_t at = kHeaderBytes + piece * kPieceBytes;
    // The last piece brings the metadata tail with it.
    const bool last = piece + 1 == promotion.pieces.size();
    const uint64_t end = last ? image_end : at + kPieceBytes;
    while (at < end) {
      const ByteRun from = LocateInImage(chunk.g3, at, end - at);
      const std::span<std::byte> to = ImageMemory(chunk.g2, at, from.bytes);
      reads.push_back({.kind = IoOperation::Kind::kRead,
                       .offset = DeviceOffset(from.tier_offset),
                       .data = to.data(),
                       .bytes = to.size(),
                       .done = [this, slot, piece](absl::Status status) {
                         OnPieceRead(slot, piece, std::move(status));
                       }});
      ++promotion.pieces[piece].reads_left;
      at += to.size();
    }
  }
  Count(static_cast<uint32_t>(work::kOperation * reads.size()));
  promotion.outstanding = static_cast<uint32_t>(reads.size());
  Later(
      [device = &attached_[promotion.device].device->io(), reads = std::move(reads)]() mutable {
        for (IoOperation& read : reads) device->Submit(std::move(read));
      });
}

absl::Status Core::CheckHeader(const ImageHeader& header, const Chunk& chunk) {
  const ImagePlacement expected{.tier = Tier::kG3,
                                .place = attached_[chunk.device].device->uuid(),
                                .incarnation = chunk.g3_incarnation,
                                .generation = chunk.g3_generation,
                                .extents = chunk.g3};
  if (header.identity.id != chunk.id || header.identity.shape != chunk.shape ||
      header.placement != expected) {
    return absl::DataLossError("the image on the device is of another chunk or placement");
  }
  return absl::OkStatus();
}

void Core::OnHeaderRead(ChunkSlot slot, AlignedPage* page, absl::Status status) {
  std::unique_ptr<ImageHeader> header;
  absl::StatusOr<std::unique_ptr<ImageCipher>> cipher(nullptr);  // of a plain image
  const bool io_ok = status.ok();
  if (io_ok) {
    absl::StatusOr<ImageHeader> decoded = DecodeHeader(page->span(), deps_.mac_key);
    if (decoded.ok()) {
      header = std::make_unique<ImageHeader>(*std::move(decoded));
      if (header->encryption.has_value()) cipher = OpenHeader(header.get());
    } else {
      status = decoded.status();
    }
  }
  Section section(this);
  Promotion& promotion = *promotions_.at(slot);
  --promotion.outstanding;
  devices_[promotion.device]->health.NoteHeard();
  const bool believed = Planted(Canary::kHeaderBelieved) && status.ok() &&
                        header->identity.shape == table_.at(slot).shape;
  if (status.ok() && !believed) status = CheckHeader(*header, table_.at(slot));
  if (status.ok()) status = cipher.status();
  if (status.ok()) {
    promotion.header = std::move(header);
    promotion.cipher = *std::move(cipher);
    for (size_t piece = 0; piece < promotion.pieces.size(); ++piece) {
      VerifyIfRead(slot, promotion, piece);
    }
  } else {
    promotion.failed_io |= !io_ok && page->ok();
    NoteFailure(promotion, std::move(status));
  }
  EndIfFailed(slot, promotion);
}

void Core::OnPieceRead(ChunkSlot slot, size_t piece, absl::Status status) {
  Section section(this);
  Promotion& promotion = *promotions_.at(slot);
  --promotion.outstanding;
  --promotion.pieces[piece].reads_left;
  devices_[promotion.device]->health.NoteHeard();
  if (status.ok()) {
    VerifyIfRead(slot, promotion, piece);
  } else {
    promotion.failed_io = true;
    promotion.failure.Update(status);
  }
  EndIfFailed(slot, promotion);
}

void Core::VerifyIfRead(ChunkSlot slot, Promotion& promotion, size_t piece) {
  if (promotion.header == nullptr || !promotion.failure.ok()) return;
  // What was encrypted together is decrypted together.
  const ImageShape& shape = promotion.header->identity.shape;
  const size_t together = promotion.cipher != nullptr ? shape.unit_pieces() : 1;
  const size_t first = piece - piece % together;
  const size_t end = std::min(first + together, promotion.pieces.size());
  for (size_t i = first; i < end; ++i) {
    if (promotion.pieces[i].reads_left > 0 || promotion.pieces[i].verifying) return;
  }
  for (size_t i = first; i < end; ++i) promotion.pieces[i].verifying = true;
  ++promotion.outstanding;
  // Header and cipher live as long as the promotion, which lives until nothing is outstanding.
  Later([this, slot, first, end, raw = &promotion, extents = table_.at(slot).g2] {
    deps_.copy_executor->Post([this, slot, first, end, raw, extents] {
      OnPiecesVerified(slot, first, end, VerifyPieces(*raw, extents, first, end));
    });
  });
}

// Memory that cannot be read has none.
bool Core::HasChecksum(const ExtentList& extents, uint64_t at, uint64_t bytes,
                       uint64_t wanted) const {
  const std::span<std::byte> run = ImageMemory(extents, at, bytes);
  if (run.size() == bytes) return GuardedXxh3(run) == wanted;
  std::vector<std::byte> gathered(bytes);  // split over extents: rare
  for (uint64_t done = 0; done < bytes;) {
    const auto part = ImageMemory(extents, at + done, bytes - done);
    if (!GuardedCopy(gathered.data() + done, part)) return false;
    done += part.size();
  }
  return Xxh3(gathered) == wanted;
}

absl::Status Core::VerifyPiece(const ImageIdentity& identity, const ExtentList& extents,
                               size_t piece) const {
  const ImageShape& shape = identity.shape;
  const uint64_t at = kHeaderBytes + piece * kPieceBytes;
  if (!Planted(Canary::kChecksumSkipped) &&
      !HasChecksum(extents, at, PieceSize(shape.payload_bytes, piece),
                   identity.piece_checksums[piece])) {
    return absl::DataLossError(absl::StrCat("piece ", piece, " does not match its checksum"));
  }
  const bool last = piece + 1 == shape.pieces();
  if (last && shape.tail_bytes > 0 &&
      !HasChecksum(extents, shape.tail_offset(), shape.tail_bytes, identity.tail_checksum)) {
    return absl::DataLossError("the metadata tail does not match its checksum");
  }
  return absl::OkStatus();
}

void Core::OnPiecesVerified(ChunkSlot slot, size_t first, size_t end, absl::Status status) {
  Section section(this);
  Promotion& promotion = *promotions_.at(slot);
  --promotion.outstanding;
  if (!status.ok()) {
    NoteFailure(promotion, std::move(status));
    EndIfFailed(slot, promotion);
    return;
  }
  for (size_t piece = first; piece < end; ++piece) promotion.pieces[piece].ready = true;
  promotion.pieces_ready += end - first;
  TellReady(promotion, first, end);
  if (promotion.pieces_ready == promotion.pieces.size()) {
    if (promotion.in_place) return FinishVerification(slot);  // its header is where it belongs
    ++promotion.outstanding;
    const Generation generation(next_generation_++);
    Later([this, slot, identity = &promotion.header->identity, extents = table_.at(slot).g2,
           generation] {
      deps_.copy_executor->Post([this, slot, identity, extents, generation] {
        EncodeHeader({*identity, G2Placement(generation, extents)}, deps_.mac_key,
                     HeaderInArena(extents));
        FinishPromotion(slot, generation);
      });
    });
  }
  EndIfFailed(slot, promotion);
}

void Core::TellReady(Promotion& promotion, size_t first, size_t end) {
  const auto is_ready = [&promotion](size_t piece) { return promotion.IsReady(piece); };
  PieceWaiters::Callbacks told;
  size_t looked_at = 0;
  for (size_t piece = first; piece < end; ++piece) {
    looked_at += promotion.waiters.OnReady(piece, promotion.header_there, is_ready, &told);
  }
  Count(static_cast<uint32_t>(work::kLook * looked_at));
  Tell(std::move(told), absl::OkStatus());
}

// However many they are, one thing to do after this hold.
void Core::Tell(PieceWaiters::Callbacks told, absl::Status with) {
  if (told.empty()) return;
  Later([told = std::move(told), with = std::move(with)]() mutable {
    for (StatusCallback& one : told) std::move(one)(with);
  });
}

void Core::EndReading(ChunkSlot slot, bool good) {
  Chunk& chunk = table_.at(slot);
  DeviceTier& tier = *devices_[chunk.device];
  chunk.g3_reading = false;
  if (chunk.in_g3_policy) g3_policy(chunk).Unpark(slot);
  const auto promotion = promotions_.find(slot);
  const uint64_t bytes = promotion->second->bytes;  // none, of what is verified in place
  tier.reading_bytes -= bytes;
  if (bytes > 0) tier.read_speed.OnEnd(bytes, good, deps_.clock->Now());
  promotions_.erase(promotion);
}

void Core::FinishPromotion(ChunkSlot slot, Generation generation) {
  Section section(this);
  const uint16_t device = table_.at(slot).device;
  Promotion& promotion = *promotions_.at(slot);
  KVKEEP_CHECK(--promotion.outstanding == 0);
  promotion.header_there = true;
  Tell(promotion.waiters.TakeAll(), absl::OkStatus());
  NoteIo(*devices_[device], false, absl::OkStatus());
  EndReading(slot, true);
  {
    Change chunk(this, slot);
    chunk->g2_state = G2State::kResident;
    // Every byte was read, and is right.
    const bool was_doubtful = chunk->doubtful;
    chunk->doubtful = false;
    if (was_doubtful && !chunk->detached) EndReplaced(*chunk);
    ++pool(*chunk).chunks;
    if (!chunk->detached) marks_.Set(chunk->g2, incarnation_, generation);
    counters_.promoted_bytes += chunk->shape.payload_bytes;
  }
  if (!Planted(Canary::kLostWakeUp)) PumpReads(device);
}

void Core::EndIfFailed(ChunkSlot slot, Promotion& promotion) {
  if (promotion.failure.ok()) return;
  Tell(promotion.waiters.TakeAll(), promotion.failure);
  if (promotion.outstanding > 0) return;
  if (promotion.in_place) return EndFailedVerification(slot);
  CountFailure(promotion);
  // Once a chunk, however many of its reads failed: one bad spot is no broken device.
  if (promotion.failed_io) NoteIo(*devices_[promotion.device], false, promotion.failure);
  const bool away = IsAway(promotion.failure);
  const uint16_t device = promotion.device;
  EndReading(slot, false);  // `promotion` is gone from here on
  const bool detached = table_.at(slot).detached;
  const bool unread = away && table_.at(slot).pins == 0;
  {
    Change chunk(this, slot);
    chunk->g2_state = G2State::kFailed;
    if (!detached && unread) FreeG2Copy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  }
  if (!detached && !unread) away ? LeaveToReaders(slot) : LoseChunk(slot);
  PumpReads(device);
}

}  // namespace kvkeep::store_internal
