#include "tiers/store/filler.h"

#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {
namespace {

void Tell(Promotion::Callbacks& told, const absl::Status& status) {
  for (StatusCallback& one : told) std::move(one)(status);
}

// Returns whether a read tells how fast the tier is. What a node that leaves offers comes as fast
// as that node likes, and would keep engines from asking others.
bool IsMeasured(const LowerTier& from, const ReadQueue::Requester& requester) {
  return from.has_records() || requester.session != ReadQueue::kPeers;
}

}  // namespace

Filler::Filler(Chunks* chunks, const ImageVerifier* verifier, const StoreDeps& deps, Host* host)
    : chunks_(*chunks), verifier_(*verifier), deps_(deps), host_(*host) {}

// ---- who waits

std::shared_ptr<Promotion> Filler::Share(ChunkSlot slot) const {
  if (chunks_.table.at(slot).resident()) return nullptr;
  const auto found = promotions_.find(slot);
  KVKEEP_CHECK(found != promotions_.end() && chunks_.table.at(slot).pins > 0);
  return found->second;
}

void Filler::WhenReady(Promotion& promotion, size_t first, size_t count,
                       StatusCallback ready) const {
  KVKEEP_CHECK(first <= promotion.pieces() && count <= promotion.pieces() - first);
  promotion.Hurry();
  std::optional<absl::Status> known =
      promotion.Await({first, first + count}, Promotion::Patience::kAsPromised,
                      deps_.clock->Now(), ready);
  if (known.has_value()) std::move(ready)(*std::move(known));
}

void Filler::Hurry(ChunkSlot slot) {
  const auto found = promotions_.find(slot);
  if (found != promotions_.end()) found->second->Hurry();
}

void Filler::AwaitAll(Promotion& promotion, StatusCallback ready) {
  std::optional<absl::Status> known =
      promotion.Await({0, promotion.pieces()}, Promotion::Patience::kToTheEnd,
                      deps_.clock->Now(), ready);
  if (known.has_value()) chunks_.CallLater(std::move(ready), *std::move(known));
}

std::optional<ImageIdentity> Filler::Identity(const Promotion* promotion,
                                              const ExtentList& extents) const {
  if (promotion != nullptr) {
    if (!promotion->failure().status.ok()) return std::nullopt;
    KVKEEP_CHECK(promotion->header() != nullptr);
    return promotion->header()->identity;
  }
  // Resident: the arena's header page is final. A damaged one (DRAM) tells nothing.
  absl::StatusOr<ImageHeader> header = DecodeGuarded(chunks_.HeaderInArena(extents), deps_.mac_key);
  if (!header.ok()) return std::nullopt;
  return std::move(header->identity);
}

Promotion* Filler::Find(ChunkSlot slot) {
  const auto found = promotions_.find(slot);
  return found == promotions_.end() ? nullptr : found->second.get();
}

// These come before all other tasks of the hold, since their callers wait.
void Filler::TellFirst(Promotion::Callbacks told, absl::Status status) {
  if (told.empty()) return;
  chunks_.Later(
      [told = std::move(told), status = std::move(status)]() mutable { Tell(told, status); });
}

// ---- reads

void Filler::Start(LowerTier& from, const ReadQueue::Requester& requester, ChunkSlot slot,
                   MonotonicTime deadline) {
  Chunk& chunk = chunks_.table.at(slot);
  KVKEEP_CHECK(chunk.g2_state == G2State::kReading && !chunk.detached);
  KVKEEP_CHECK(!from.has_records() || (chunk.g3_state == G3State::kStored && !chunk.g3_reading));
  auto promotion =
      std::make_shared<Promotion>(&from, requester, slot, chunk.shape, chunk.g2, deadline);
  if (requester.session == SessionToken{}) promotion->SetUnhurried();  // the store asks for itself
  from.reads.Ask(requester, slot, promotion->bytes(), deps_.clock->Now(),
                 IsMeasured(from, requester));
  KVKEEP_CHECK(promotions_.emplace(slot, std::move(promotion)).second);
  chunk.g3_reading |= from.has_records();
  if (from.has_records()) ++chunks_.counters.promotions;  // recalls have counters of their own
  PumpReads(from);
}

void Filler::PumpReads(LowerTier& from) {
  while (from.reads.anyone_waits()) {
    if (chunks_.Spent()) return chunks_.PumpLater(from.pump);
    const ChunkSlot slot = from.reads.next();
    Promotion& promotion = *promotions_.at(slot);
    KVKEEP_CHECK(promotion.from() == &from && promotion.waits());
    if (!from.reads.MayBegin(promotion.bytes())) return;
    chunks_.Count(work::kStart);  // only now, so that one that waits costs the other pumps nothing
    from.reads.Begin(promotion.bytes());
    chunks_.counters.promotion_runs += from.NoteRuns(chunks_.table.at(slot));
    BeginReads(from, promotion);
  }
}

void Filler::BeginReads(LowerTier& from, Promotion& promotion) {
  const Chunk& chunk = chunks_.table.at(promotion.slot());
  promotion.BeginReads(from.Expect(chunk));
  chunks_.Count(static_cast<uint32_t>(work::kOperation * (1 + promotion.pieces())));
  chunks_.Later([this, &promotion] { Read(promotion); });
}

void Filler::Read(Promotion& promotion) {
  const bool has_page = promotion.TakeHeaderPage();
  const HeaderPage page = promotion.header_page().span();
  // Without a page nothing is read, and the chunk stays as it is.
  if (!has_page) return OnHeaderRead(promotion, page, AlignedPage::NoMemory());
  const ExpectedHeader& expected = promotion.expected();
  promotion.from()->Read({.sink = this,
                          .promotion = &promotion,
                          .id = expected.id,
                          .shape = expected.shape,
                          .extents = expected.placement.extents,
                          .header = page,
                          .to = ArenaImage(deps_.arena, promotion.to()),
                          .deadline = promotion.deadline()});
}

void Filler::OnHeaderRead(Promotion& promotion, HeaderPage page, absl::Status status) {
  LowerTier& from = *promotion.from();
  from.NoteHeard();
  std::unique_ptr<ImageHeader> header;
  absl::StatusOr<std::unique_ptr<ImageCipher>> cipher(nullptr);  // of a plain image
  const bool io_ok = status.ok();
  if (io_ok) {
    absl::StatusOr<ImageHeader> decoded = DecodeHeader(page, from.mac_key);
    if (decoded.ok()) {
      header = std::make_unique<ImageHeader>(*std::move(decoded));
      if (header->encryption.has_value()) cipher = verifier_.OpenHeader(header.get());
    } else {
      status = decoded.status();
    }
  }
  const ExpectedHeader& expected = promotion.expected();
  const bool believed =
      Planted(Canary::kHeaderBelieved) && status.ok() && header->identity.shape == expected.shape;
  if (status.ok() && !believed) status = from.CheckHeader(*header, expected);
  if (status.ok()) status = cipher.status();
  GoOn(promotion, status.ok() ? promotion.OnHeader(std::move(header), *std::move(cipher))
                              : promotion.OnHeaderFailed(std::move(status), !io_ok));
}

void Filler::OnPieceRead(Promotion& promotion, size_t piece, uint64_t bytes, absl::Status status) {
  promotion.from()->NoteHeard();
  if (status.ok()) promotion.NoteCame(*deps_.clock);
  GoOn(promotion, promotion.OnPieceRead(piece, bytes, status));
}

// ---- verification in place

void Filler::VerifyInPlace(ChunkSlot slot, bool hurried) {
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(chunk->g2_state == G2State::kUnverified);
  std::shared_ptr<Promotion> promotion = Promotion::InPlace(slot, chunk->shape, chunk->g2);
  if (!hurried) promotion->SetUnhurried();
  Executor& executor = ExecutorFor(*promotion);
  KVKEEP_CHECK(promotions_.emplace(slot, std::move(promotion)).second);
  chunks_.SetG2State(*chunk, G2State::kVerifying);
  chunks_.Later([this, &executor, slot, extents = chunk->g2] {
    executor.Post([this, slot, extents] {
      OnArenaHeaderRead(slot, DecodeGuarded(chunks_.HeaderInArena(extents), deps_.mac_key));
    });
  });
}

void Filler::OnArenaHeaderRead(ChunkSlot slot, absl::StatusOr<ImageHeader> header) {
  Promotion* promotion = nullptr;
  {
    Section section(&chunks_);
    promotion = promotions_.at(slot).get();
    const Chunk& chunk = chunks_.table.at(slot);
    KVKEEP_CHECK(chunk.g2_state == G2State::kVerifying);
    const bool same = header.ok() && header->identity.id == chunk.id &&
                      header->identity.shape == chunk.shape &&
                      header->placement.tier == Tier::kG2 && !header->encryption &&
                      header->placement.place == deps_.arena->uuid() &&
                      header->placement.extents == chunk.g2.list() &&
                      (chunk.detached || chunks_.marks.IsOf(header->placement));
    if (header.ok() && !same) {
      header = absl::DataLossError("the image in memory is of another chunk");
    }
  }
  GoOn(*promotion,
       header.ok()
           ? promotion->OnHeader(std::make_unique<ImageHeader>(*std::move(header)), nullptr)
           : promotion->OnHeaderFailed(absl::DataLossError(header.status().message()), false));
}

// ---- what comes next

// Runs without any lock. If `next` has nothing to do, the promotion may be gone. Otherwise each of
// next.verify is outstanding, so the promotion lives until the last of them has run. This may
// happen before this loop is over. Then next.end is kNone, because an end means that nothing is
// outstanding.
void Filler::GoOn(Promotion& promotion, Promotion::Next next) {
  for (const Promotion::Pieces& pieces : next.verify) {
    const std::optional<int> node =
        deps_.arena->NodeOf(promotion.to(), kHeaderBytes + pieces.first * kPieceBytes);
    ExecutorFor(promotion).PostNear(node, [this, &promotion, pieces] {
      absl::Status status = verifier_.Verify(promotion, pieces);
      if (status.ok()) promotion.NoteCame(*deps_.clock);
      GoOn(promotion, promotion.OnVerified(pieces, std::move(status)));
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

void Filler::WriteArenaHeader(Promotion& promotion) {
  deps_.copy_executor->Post([this, &promotion] {
    const Generation generation = chunks_.NextGeneration();
    EncodeHeader({promotion.header()->identity, chunks_.PlacementOf(generation, promotion.to())},
                 deps_.mac_key, chunks_.HeaderInArena(promotion.to()));
    FinishPromotion(promotion, generation);
  });
}

// ---- ends

LowerTier& Filler::EndReading(ChunkSlot slot, bool good) {
  const auto promotion = promotions_.find(slot);
  KVKEEP_CHECK(promotion != promotions_.end() && !promotion->second->waits());
  LowerTier& from = *promotion->second->from();
  from.reads.End(promotion->second->bytes(), good, deps_.clock->Now(),
                 IsMeasured(from, promotion->second->requester()));
  const std::optional<std::chrono::seconds> age = promotion->second->age();
  promotion->second->EndReads();
  promotions_.erase(promotion);
  host_.OnReadEnded(slot, from, age);
  return from;
}

void Filler::FinishPromotion(Promotion& promotion, Generation generation) {
  chunks_.Prefetch(promotion.slot());
  Section section(&chunks_);
  TellFirst(promotion.EndHeader(), absl::OkStatus());
  const ChunkSlot slot = promotion.slot();
  host_.NoteIo(*promotion.from(), false, absl::OkStatus());
  LowerTier& from = EndReading(slot, true);  // `promotion` may be gone from here on
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kResident);
    chunks_.pool(*chunk).LookAgain(chunk->g2);
    host_.OnRead(*chunk, from);
    if (!chunk->detached) chunks_.marks.Set(chunk->g2, chunks_.incarnation(), generation);
    if (from.has_records()) chunks_.counters.promoted_bytes += chunk->shape.payload_bytes;
  }
  host_.OnFilled(slot, &from);
  if (!Planted(Canary::kLostWakeUp)) PumpReads(from);
}

void Filler::EndFailedPromotion(Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const Promotion::Failure failure = promotion.failure();
  KVKEEP_CHECK(!failure.status.ok());
  CountFailure(failure);
  chunks_.counters.allocation_failures += !promotion.header_page().ok();
  const ChunkSlot slot = promotion.slot();
  // Counts one failure for the chunk, however many of its reads failed: one bad spot does not mean
  // that the device is broken.
  LowerTier& from = *promotion.from();
  if (from.has_records()) ++chunks_.counters.promotions_failed;  // a recall counts its own
  if (failure.io) host_.NoteIo(from, false, failure.status);
  // A read that failed may succeed the next time. So a chunk is lost only when several reads of it
  // have failed over time (suspects.h).
  const bool suspect = failure.io && from.has_records() && !chunks_.table.at(slot).detached &&
                       !IsAway(failure.status);
  const bool away =
      IsAway(failure.status) || (suspect && host_.IsReadAgain(chunks_.table.at(slot)));
  if (absl::IsDataLoss(failure.status)) from.NoteBad(chunks_.table.at(slot).id, promotion.header());
  EndReading(slot, false);  // `promotion` may be gone from here on
  // kFailed: the bytes are damaged. The chunk and its record are removed; readers keep the space
  // until they unpin it. kAway: the tier is out of reach, or the chunk is a suspect. Nothing is
  // known of the bytes, so the record stays. If readers wait on this slot, the record moves to a
  // slot of its own. A recalled chunk has no record and is removed in both cases.
  const bool detached = chunks_.table.at(slot).detached;
  const bool unread = away && chunks_.table.at(slot).pins == 0;
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, away ? G2State::kAway : G2State::kFailed);
    if (!detached && unread) chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
  }
  if (!detached && !unread) host_.OnSpoilt(slot, away);
  PumpReads(from);
}

void Filler::FinishVerification(const Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const ChunkSlot slot = promotion.slot();
  KVKEEP_CHECK(promotions_.erase(slot) == 1);
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kResident);
    chunks_.pool(*chunk).LookAgain(chunk->g2);
  }
  host_.OnFilled(slot, nullptr);
  host_.OnVerified(slot);
}

void Filler::EndFailedVerification(const Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const ChunkSlot slot = promotion.slot();
  chunks_.WithholdBroken();  // before its blocks are free
  KVKEEP_CHECK(promotions_.erase(slot) == 1);
  ++chunks_.counters.corrupt_chunks;
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kFailed);
    if (!chunk->detached && chunk->g3_state == G3State::kStored && chunk->pins == 0) {
      chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.live && !chunk.detached && chunk.has_g2_space()) {
    host_.OnSpoilt(slot, chunk.g3_state == G3State::kStored);
  }
  host_.OnVerified(slot);
}

void Filler::CountFailure(const Promotion::Failure& failure) {
  if (failure.unauthentic) ++chunks_.counters.unauthentic_chunks;
  if (failure.keyless) {
    ++chunks_.counters.keyless_chunks;
  } else if (!failure.io && !IsAway(failure.status)) {
    ++chunks_.counters.corrupt_chunks;
  }
}

}  // namespace kvkeep::store_internal
