// Reads, and promotion from G3 to G2: single flight per chunk, verified and ready piece by piece.
//
// An encrypted image is decrypted on the way (decrypt.cc), in units of some pieces.
// The header is read into a page of its own together with the payload; pieces wait for it to be
// verified against. The arena's own header is written last, when every piece is good.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/memory_errors.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"
#include "tiers/store/guarded_header.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {
namespace {

void Tell(Promotion::Callbacks& told, const absl::Status& status) {
  for (StatusCallback& one : told) std::move(one)(status);
}

}  // namespace

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
  Section section(&chunks_);
  absl::StatusOr<Session*> session = sessions_.Find(token);
  if (!session.ok()) return session.status();
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckGrant(**session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR((*session)->FindNamespace(id.ns).status());
  const TenantId tenant = (*session)->tenant();
  const absl::StatusOr<bool> paid = IsPaid(token, lease);
  if (!paid.ok()) return paid.status();
  ChunkSlot in_lease = kNoSlot;
  if (lease.value() != 0) {
    in_lease = FindInLease(section, token, lease, id);
    session = sessions_.Find(token);  // the walk may have yielded
    if (!session.ok()) return session.status();
  }
  ChunkSlot slot = table_.Find(id);
  // Leased chunks have their space in G2, so the one found is another, put after a delete; or there
  // is none any more.
  if (slot == kNoSlot || !table_.at(slot).has_g2_space()) {
    slot = in_lease != kNoSlot ? in_lease : slot;
  }
  const bool leased = slot != kNoSlot && slot == in_lease;
  const bool costs_bytes = !leased || !*paid;
  absl::Status in_time = costs_bytes ? ChargeRead(**session, leased) : absl::OkStatus();
  if (!in_time.ok()) return in_time;
  if (!leased) NoteWanted(id);  // what a lease holds was asked for when it was granted
  if (slot == kNoSlot || !(table_.at(slot).has_g2_space() || InG3(table_.at(slot)))) {
    ++counters_.read_misses;
    return result;
  }
  const Tier from = table_.at(slot).lies_in();
  result.from_g3 = from != Tier::kG2;
  if (from == Tier::kG3 && table_.at(slot).g2_state == G2State::kReading) {
    ++counters_.promotions_shared;
  }
  const TenantId owner = owners_.OwnerOf(id.ns);
  const bool lent = owner != tenant && !leased;  // leased, it was counted when it was
  if (lent && !pool(owner).MayLend(table_.at(slot).blocks())) {
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  const uint32_t yields = section.yields();
  if (!EnsureInG2(section, {tenant, token}, owner, slot, kNoSlot, transient)) {
    const bool gone = section.yields() != yields && !table_.StillIs(slot, id);
    if (gone || table_.at(slot).failed()) {
      ++counters_.read_misses;
      return result;
    }
    ++counters_.read_busy;
    result.outcome = ReadOutcome::kBusy;
    return result;
  }
  chunks_.Pin(slot);
  if (costs_bytes) CountRead(token, tenant, table_.at(slot), from);
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

void Core::CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, Tier from) {
  sessions_.ChargeBytes(tenant, chunk.shape.payload_bytes);
  Served served;
  served.Add(from, chunk.shape.payload_bytes);
  // The session may have been closed while the lock was let go of.
  CountServed(sessions_.FindOrNull(token), chunk.id.ns, served);
}

ChunkSlot Core::FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                            const ChunkId& id) {
  const Lease* held = leases_.Find(token, lease);
  if (held == nullptr) return kNoSlot;
  // From where the last one was, in both directions. A lease gets no new entries.
  const size_t from = std::min(held->read_last + 1, held->entries.size());
  for (size_t step = 0;; ++step) {
    section.YieldIfSpent();
    Count(work::kFind);
    held = leases_.Find(token, lease);
    if (held == nullptr || (step >= from && from + step >= held->entries.size())) return kNoSlot;
    for (const size_t at : {from + step, from - 1 - step}) {
      if (at >= held->entries.size()) continue;  // below 0 is above all
      if (table_.at(held->entries[at].slot).id != id) continue;
      held->read_last = at;
      return held->entries[at].slot;
    }
  }
}

void Core::WhenReady(ChunkSlot slot, size_t first, size_t count, StatusCallback ready) {
  Section section(&chunks_);
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.pins > 0);
  KVKEEP_CHECK(first <= chunk.shape.pieces() && count <= chunk.shape.pieces() - first);
  if (chunk.g2_state == G2State::kResident) {
    CallLater(std::move(ready), absl::OkStatus());
    return;
  }
  if (chunk.failed()) {
    CallLater(std::move(ready), chunk.g2_state == G2State::kAway
                                    ? absl::UnavailableError("the chunk could not be read")
                                    : absl::DataLossError("the chunk was damaged on its device"));
    return;
  }
  Count(static_cast<uint32_t>(work::kLook * count));
  Promotion& promotion = *promotions_.at(slot);
  const bool late = promotion.promised() <= deps_.clock->Now();
  Await(promotion, {first, first + count}, std::move(ready),
        late ? Promotion::Patience::kNone : Promotion::Patience::kAsPromised);
}

void Core::Await(Promotion& promotion, Promotion::Pieces pieces, StatusCallback ready,
                 Promotion::Patience patience) {
  std::optional<absl::Status> known = promotion.Await(pieces, patience, ready);
  if (known.has_value()) CallLater(std::move(ready), *std::move(known));
}

void Core::AwaitAll(Promotion& promotion, StatusCallback ready) {
  Await(promotion, {0, promotion.pieces()}, std::move(ready), Promotion::Patience::kToTheEnd);
}

std::vector<uint64_t> Core::PieceChecksums(ChunkSlot slot, const ExtentList& extents) {
  {
    Section section(&chunks_);
    const auto promotion = promotions_.find(slot);
    if (promotion != promotions_.end()) {
      KVKEEP_CHECK(promotion->second->header() != nullptr);
      return promotion->second->header()->identity.piece_checksums;
    }
    // Its header was never written: that page holds what lay there before, perhaps a valid header.
    if (table_.at(slot).failed()) return {};
  }
  // Resident: the arena's header page is final. A damaged one (DRAM) yields no checksums.
  absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(extents), deps_.mac_key);
  if (!header.ok()) return {};
  return std::move(header->identity.piece_checksums);
}

void Core::StartPromotion(LowerTier& from, const ReadQueue::Requester& requester, ChunkSlot slot,
                          MonotonicTime deadline) {
  Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.g2_state == G2State::kReading && !chunk.detached);
  KVKEEP_CHECK(!from.has_records() || (chunk.g3_state == G3State::kStored && !chunk.g3_reading));
  auto promotion =
      std::make_unique<Promotion>(&from, requester, slot, chunk.shape, chunk.g2, deadline);
  from.reads.Ask(requester, slot, promotion->bytes(), deps_.clock->Now());
  KVKEEP_CHECK(promotions_.emplace(slot, std::move(promotion)).second);
  chunk.g3_reading |= from.has_records();
  if (from.has_records()) ++counters_.promotions;  // recalls have counters of their own
  PumpReads(from);
}

void Core::PumpReads(LowerTier& from) {
  while (from.reads.anyone_waits()) {
    if (Spent()) return PumpLater(from);
    const ChunkSlot slot = from.reads.next();
    Promotion& promotion = *promotions_.at(slot);
    KVKEEP_CHECK(promotion.from() == &from && promotion.waits());
    if (!from.reads.MayBegin(promotion.bytes())) return;
    Count(work::kStart);  // only now: who has to wait takes nothing from the other pumps
    from.reads.Begin(promotion.bytes());
    counters_.promotion_runs += from.NoteRuns(table_.at(slot));
    BeginReads(from, promotion);
  }
}

void Core::BeginReads(LowerTier& from, Promotion& promotion) {
  const Chunk& chunk = table_.at(promotion.slot());
  promotion.BeginReads();
  const HeaderPage page = promotion.header_page().span();
  if (!promotion.header_page().ok()) {  // then nothing is read, and the chunk stays what it is
    ++counters_.allocation_failures;
    return Later([this, &promotion, page] {
      OnHeaderRead(promotion, page, AlignedPage::NoMemory());
    });
  }
  Count(static_cast<uint32_t>(work::kOperation * (1 + promotion.pieces())));
  ImageRead read{.sink = this,
                 .promotion = &promotion,
                 .id = chunk.id,
                 .shape = chunk.shape,
                 .extents = chunk.g3,
                 .header = page,
                 .to = ArenaImage(deps_.arena, promotion.to()),
                 .deadline = promotion.deadline()};
  Later([&from, read = std::move(read)]() mutable { from.Read(std::move(read)); });
}

void Core::OnHeaderRead(Promotion& promotion, HeaderPage page, absl::Status status) {
  LowerTier& from = *promotion.from();
  from.NoteHeard();
  std::unique_ptr<ImageHeader> header;
  absl::StatusOr<std::unique_ptr<ImageCipher>> cipher(nullptr);  // of a plain image
  const bool io_ok = status.ok();
  if (io_ok) {
    absl::StatusOr<ImageHeader> decoded = DecodeHeader(page, from.mac_key);
    if (decoded.ok()) {
      header = std::make_unique<ImageHeader>(*std::move(decoded));
      if (header->encryption.has_value()) cipher = OpenHeader(header.get());
    } else {
      status = decoded.status();
    }
  }
  {
    Section section(&chunks_);
    Chunk& chunk = table_.at(promotion.slot());
    const bool believed = Planted(Canary::kHeaderBelieved) && status.ok() &&
                          header->identity.shape == chunk.shape;
    if (status.ok() && !believed) status = from.CheckHeader(*header, chunk);
    if (status.ok()) status = cipher.status();
  }
  GoOn(promotion, status.ok() ? promotion.OnHeader(std::move(header), *std::move(cipher))
                              : promotion.OnHeaderFailed(std::move(status), !io_ok));
}

void Core::OnPieceRead(Promotion& promotion, size_t piece, uint64_t bytes, absl::Status status) {
  promotion.from()->NoteHeard();
  GoOn(promotion, promotion.OnPieceRead(piece, bytes, status));
}

// Without any lock. Where nothing is to be done the promotion may be gone. Each of next.verify is
// outstanding: the promotion lives until the last of them has run, perhaps before this loop is
// over, and no end comes with them, as an end means that nothing is outstanding.
void Core::GoOn(Promotion& promotion, Promotion::Next next) {
  for (const Promotion::Pieces& pieces : next.verify) {
    deps_.copy_executor->Post([this, &promotion, pieces] {
      GoOn(promotion, promotion.OnVerified(pieces, VerifyPieces(promotion, pieces)));
    });
  }
  switch (next.end) {
    case Promotion::Next::End::kFailed:
      return promotion.in_place() ? EndFailedVerification(promotion, std::move(next))
                                  : EndFailedPromotion(promotion, std::move(next));
    case Promotion::Next::End::kAllReady:
      if (promotion.in_place()) return FinishVerification(promotion, std::move(next));
      WriteArenaHeader(promotion);
      break;
    case Promotion::Next::End::kNone:
      break;
  }
  Tell(next.told, next.status);
}

// Before all else that this hold leaves to do: they wait.
void Core::TellFirst(Promotion::Callbacks told, absl::Status status) {
  if (told.empty()) return;
  Later([told = std::move(told), status = std::move(status)]() mutable { Tell(told, status); });
}

void Core::WriteArenaHeader(Promotion& promotion) {
  deps_.copy_executor->Post([this, &promotion] {
    const Generation generation(next_generation_++);
    EncodeHeader({promotion.header()->identity, chunks_.PlacementOf(generation, promotion.to())},
                 deps_.mac_key, chunks_.HeaderInArena(promotion.to()));
    FinishPromotion(promotion, generation);
  });
}

// Memory that cannot be read has none.
bool Core::HasChecksum(const ExtentList& extents, uint64_t at, uint64_t bytes,
                       uint64_t wanted) const {
  const std::span<std::byte> run = chunks_.ImageMemory(extents, at, bytes);
  if (run.size() == bytes) return GuardedXxh3(run) == wanted;
  std::vector<std::byte> gathered(bytes);  // split over extents: rare
  for (uint64_t done = 0; done < bytes;) {
    const auto part = chunks_.ImageMemory(extents, at + done, bytes - done);
    if (!GuardedCopy(gathered.data() + done, part)) return false;
    done += part.size();
  }
  return Xxh3(gathered) == wanted;
}

absl::Status Core::VerifyPiece(const ImageIdentity& identity, const ExtentList& extents,
                               size_t piece) const {
  const ImageShape& shape = identity.shape;
  const uint64_t at = shape.piece_begin(piece);
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

LowerTier& Core::EndReading(ChunkSlot slot, bool good) {
  Chunk& chunk = table_.at(slot);
  const auto promotion = promotions_.find(slot);
  KVKEEP_CHECK(promotion != promotions_.end() && !promotion->second->waits());
  LowerTier& from = *promotion->second->from();
  from.reads.End(promotion->second->bytes(), good, deps_.clock->Now());
  const std::optional<std::chrono::seconds> age = promotion->second->age();
  promotions_.erase(promotion);
  if (!from.has_records()) {
    recaller_->OnReadEnded(chunk);
    if (age.has_value()) chunk.beyond = remote_->ages.Of(*age, deps_.clock->Now());
    return from;
  }
  KVKEEP_CHECK(chunk.g3_reading && chunk.device == from.number);
  chunk.g3_reading = false;
  if (chunk.in_g3_policy) g3_policy(chunk).Unpark(slot);
  return from;
}

void Core::FinishPromotion(Promotion& promotion, Generation generation) {
  Section section(&chunks_);
  TellFirst(promotion.EndHeader(), absl::OkStatus());
  const ChunkSlot slot = promotion.slot();
  NoteIo(*promotion.from(), false, absl::OkStatus());
  LowerTier& from = EndReading(slot, true);  // `promotion` is gone from here on
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kResident);
    pool(*chunk).LookAgain(chunk->g2);
    // Every byte was read, and is right.
    if (from.has_records()) scrubber_.NoteReadable(chunk->id);
    if (chunk->doubtful) {
      EndDoubt(*chunk);
    } else if (!chunk->detached && chunk->g3_state == G3State::kStored) {
      EndReplaced(*chunk);
    }
    if (!chunk->detached) marks_.Set(chunk->g2, incarnation_, generation);
    if (from.has_records()) counters_.promoted_bytes += chunk->shape.payload_bytes;
  }
  from.has_records() ? WriteBackIfUnbacked(slot) : LeaveToNextUse(slot);
  if (!Planted(Canary::kLostWakeUp)) PumpReads(from);
}

void Core::EndFailedPromotion(const Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const Promotion::Failure failure = promotion.failure();
  KVKEEP_CHECK(!failure.status.ok());
  CountFailure(failure);
  const ChunkSlot slot = promotion.slot();
  // Once a chunk, however many of its reads failed: one bad spot is no broken device.
  LowerTier& from = *promotion.from();
  if (from.has_records()) ++counters_.promotions_failed;  // a recall counts its own
  if (failure.io) NoteIo(from, false, failure.status);
  // A read that failed may succeed the next time: a chunk is lost only when reads of it have failed
  // over and over (suspects.h).
  const bool suspect = failure.io && from.has_records() && !table_.at(slot).detached &&
                       !IsAway(failure.status);
  const bool away = IsAway(failure.status) ||
                    (suspect && scrubber_.NoteUnreadable(table_.at(slot), deps_.clock->Now()));
  if (absl::IsDataLoss(failure.status)) from.NoteBad(table_.at(slot).id);
  EndReading(slot, false);  // `promotion` is gone from here on
  // Damaged (kFailed): the chunk and its record go; readers keep the space until they let go. Out
  // of reach, or suspect (kAway): nothing is known of the bytes, so the record stays. With readers,
  // who wait on this slot, it moves to a slot of its own. A recall has no record and goes in any
  // case.
  const bool detached = table_.at(slot).detached;
  const bool unread = away && table_.at(slot).pins == 0;
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, away ? G2State::kAway : G2State::kFailed);
    if (!detached && unread) chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  }
  if (!detached && !unread) away ? LeaveToReaders(slot) : LoseChunk(slot);
  PumpReads(from);
}

}  // namespace kvkeep::store_internal
