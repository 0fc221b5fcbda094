#include "tiers/store/promotion.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

Promotion::Promotion(LowerTier* from, const ReadQueue::Requester& requester, ChunkSlot slot,
                     const ImageShape& shape, ExtentList to, MonotonicTime deadline)
    : from_(from),
      requester_(requester),
      slot_(slot),
      shape_(shape),
      to_(std::move(to)),
      deadline_(deadline),
      waits_(from != nullptr),
      header_there_(from == nullptr),
      pieces_(shape.pieces()) {
  MutexLock lock(&mu_);
  waiters_.Resize(pieces_.size());
  if (in_place()) outstanding_ = 1;  // the header
}

std::unique_ptr<Promotion> Promotion::InPlace(ChunkSlot slot, const ImageShape& shape,
                                              ExtentList to) {
  return std::make_unique<Promotion>(nullptr, ReadQueue::Requester{}, slot, shape, std::move(to));
}

void Promotion::BeginReads(ExpectedHeader expected) {
  KVKEEP_CHECK(waits_);
  waits_ = false;
  expected_ = std::move(expected);
  MutexLock lock(&mu_);
  KVKEEP_CHECK(outstanding_ == 0);
  ++outstanding_;  // the header
}

bool Promotion::TakeHeaderPage() {
  if (!header_page_.emplace().ok()) return false;
  MutexLock lock(&mu_);
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    // The last piece brings the metadata tail with it.
    pieces_[piece].bytes_left = shape_.piece_end(piece) - shape_.piece_begin(piece);
    ++outstanding_;
  }
  return true;
}

Promotion::Next Promotion::OnHeader(std::unique_ptr<ImageHeader> header,
                                    std::unique_ptr<ImageCipher> cipher) {
  Next next;
  MutexLock lock(&mu_);
  KVKEEP_CHECK(outstanding_ > 0 && header_ == nullptr && header != nullptr);
  --outstanding_;
  header_ = std::move(header);
  cipher_ = std::move(cipher);
  for (size_t piece = 0; piece < pieces_.size(); ++piece) TakeToVerify(piece, next);
  TellFailure(next);
  return next;
}

Promotion::Next Promotion::OnHeaderFailed(absl::Status why, bool io) {
  Next next;
  MutexLock lock(&mu_);
  KVKEEP_CHECK(outstanding_ > 0 && header_ == nullptr);
  --outstanding_;
  failure_.io |= io && header_page_->ok();
  io ? failure_.status.Update(why) : NoteFailure(std::move(why));
  TellFailure(next);
  return next;
}

Promotion::Next Promotion::OnPieceRead(size_t piece, uint64_t bytes, const absl::Status& status) {
  Next next;
  MutexLock lock(&mu_);
  KVKEEP_CHECK(piece < pieces_.size() && outstanding_ > 0);
  uint64_t& left = pieces_[piece].bytes_left;
  KVKEEP_CHECK(bytes > 0 && bytes <= left);
  left -= bytes;
  if (left == 0) --outstanding_;
  if (!status.ok()) {
    failure_.io = true;
    failure_.status.Update(status);
  }
  TakeToVerify(piece, next);
  TellFailure(next);
  return next;
}

// If they may be: the piece, and what was encrypted together with it, as one message.
void Promotion::TakeToVerify(size_t piece, Next& next) {
  if (header_ == nullptr || !failure_.status.ok()) return;
  const size_t together = cipher_ != nullptr ? shape_.unit_pieces() : 1;
  const size_t first = piece - piece % together;
  const Pieces taken{first, std::min(first + together, pieces_.size())};
  for (size_t i = taken.first; i < taken.end; ++i) {
    if (pieces_[i].bytes_left > 0 || pieces_[i].verifying) return;
  }
  for (size_t i = taken.first; i < taken.end; ++i) pieces_[i].verifying = true;
  ++outstanding_;
  next.verify.push_back(taken);
}

Promotion::Next Promotion::OnVerified(const Pieces& pieces, absl::Status status) {
  Next next;
  MutexLock lock(&mu_);
  KVKEEP_CHECK(outstanding_ > 0);
  KVKEEP_CHECK(pieces.first < pieces.end && pieces.end <= pieces_.size());
  --outstanding_;
  if (!status.ok()) NoteFailure(std::move(status));
  if (!failure_.status.ok()) {
    TellFailure(next);
    return next;
  }
  for (size_t i = pieces.first; i < pieces.end; ++i) {
    KVKEEP_CHECK(pieces_[i].verifying && !pieces_[i].ready);
    pieces_[i].ready = true;
  }
  ready_ += pieces.end - pieces.first;
  for (size_t piece = pieces.first; piece < pieces.end; ++piece) {
    waiters_.OnReady(piece, header_there_, [this](size_t one) { return IsReady(one); }, &next.told);
  }
  KVKEEP_CHECK(ready_ <= pieces_.size());
  if (ready_ == pieces_.size()) {
    KVKEEP_CHECK(outstanding_ == 0);
    next.end = Next::End::kAllReady;
    if (!in_place()) outstanding_ = 1;  // the header, into the arena
  }
  return next;
}

Promotion::Callbacks Promotion::EndHeader() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(ready_ == pieces_.size() && outstanding_ == 1);
  outstanding_ = 0;
  header_there_ = true;
  return waiters_.TakeAll();
}

void Promotion::NoteFailure(absl::Status why) {
  if (absl::IsUnauthenticated(why)) {
    failure_.unauthentic = true;
    why = absl::DataLossError(why.message());
  }
  failure_.keyless |= absl::IsNotFound(why);
  failure_.status.Update(why);
}

// To those who wait: of what a device could not read, only that it was not read.
absl::Status Promotion::told_failure() const {
  const bool unread = failure_.io && !in_place() && from_->has_records() &&
                      absl::IsDataLoss(failure_.status);
  return unread ? absl::UnavailableError(failure_.status.message()) : failure_.status;
}

void Promotion::TellFailure(Next& next) {
  if (failure_.status.ok()) return;
  next.told = waiters_.TakeAll();
  next.status = told_failure();
  if (outstanding_ == 0) next.end = Next::End::kFailed;
}

bool Promotion::AreReady(const Pieces& pieces) const {
  if (pieces.end == pieces_.size() && !header_there_) return false;
  const auto at = [this](size_t piece) { return pieces_.begin() + static_cast<ptrdiff_t>(piece); };
  return std::all_of(at(pieces.first), at(pieces.end), [](const Piece& one) { return one.ready; });
}

MonotonicTime Promotion::promised_now() const {
  return wait_ == nullptr ? promised_ : std::max(promised_, wait_->until());
}

MonotonicTime Promotion::promised() const {
  MutexLock lock(&mu_);
  return promised_now();
}

bool Promotion::keeps_until(MonotonicTime time) const {
  MutexLock lock(&mu_);
  return !told_late_ && promised_now() >= time;
}

bool Promotion::may_be_late(MonotonicTime now) const {
  MutexLock lock(&mu_);
  const MonotonicTime until = promised_now();
  return !told_late_ && until < MonotonicTime::max() && until > now;
}

void Promotion::WaitWith(std::shared_ptr<SharedWait> others) {
  MutexLock lock(&mu_);
  wait_ = std::move(others);
}

void Promotion::NoteCame(const Clock& clock) {
  MutexLock lock(&mu_);
  if (wait_ != nullptr) wait_->NoteCame(clock.Now());
}

void Promotion::Promise(MonotonicTime until) {
  MutexLock lock(&mu_);
  promised_ = until;
  told_late_ = false;
}

void Promotion::EndReads() {
  header_page_.reset();
  cipher_.reset();
}

std::optional<absl::Status> Promotion::Await(const Pieces& pieces, Patience patience,
                                             MonotonicTime now, PieceWaiters::Callback& ready) {
  KVKEEP_CHECK(pieces.first <= pieces.end && pieces.end <= pieces_.size());
  MutexLock lock(&mu_);
  // First: who is told OK may ask for the checksums, which a promotion that has failed has not.
  if (!failure_.status.ok()) return told_failure();
  if (AreReady(pieces)) return absl::OkStatus();
  const bool late = told_late_ || promised_now() <= now;
  if (late && patience == Patience::kAsPromised) return absl::UnavailableError("the chunk is late");
  waiters_.Add(
      pieces.first, pieces.end, patience == Patience::kToTheEnd,
      [this](size_t piece) { return IsReady(piece); }, std::move(ready));
  return std::nullopt;
}

Promotion::Callbacks Promotion::TakeImpatient() {
  MutexLock lock(&mu_);
  told_late_ = true;
  return waiters_.TakeImpatient();
}

Promotion::Failure Promotion::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace kvkeep::store_internal
