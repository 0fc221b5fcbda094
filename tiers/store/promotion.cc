#include "tiers/store/promotion.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

Promotion::Promotion(LowerTier* from, const ReadQueue::Asker& asker, const ImageShape& shape)
    : from_(from),
      asker_(asker),
      shape_(shape),
      waits_(from != nullptr),
      header_there_(from == nullptr),
      pieces_(shape.pieces()) {
  waiters_.Resize(pieces_.size());
}

std::unique_ptr<Promotion> Promotion::InPlace(const ImageShape& shape) {
  auto promotion = std::make_unique<Promotion>(nullptr, ReadQueue::Asker{}, shape);
  promotion->outstanding_ = 1;  // the header
  return promotion;
}

void Promotion::BeginReads() {
  KVKEEP_CHECK(waits_);
  waits_ = false;
  ++outstanding_;  // the header
  if (!header_page_.ok()) return;
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    // The last piece brings the metadata tail with it.
    pieces_[piece].bytes_left = shape_.piece_end(piece) - shape_.piece_begin(piece);
    ++outstanding_;
  }
}

void Promotion::OnHeader(std::unique_ptr<ImageHeader> header, std::unique_ptr<ImageCipher> cipher) {
  KVKEEP_CHECK(outstanding_ > 0 && header_ == nullptr);
  --outstanding_;
  header_ = std::move(header);
  cipher_ = std::move(cipher);
}

void Promotion::OnHeaderFailed(absl::Status why, bool io) {
  KVKEEP_CHECK(outstanding_ > 0 && header_ == nullptr);
  --outstanding_;
  failed_io_ |= io && header_page_.ok();
  io ? failure_.Update(why) : NoteFailure(std::move(why));
}

void Promotion::OnPieceRead(size_t piece, uint64_t bytes, const absl::Status& status) {
  uint64_t& left = pieces_[piece].bytes_left;
  KVKEEP_CHECK(bytes > 0 && bytes <= left);
  left -= bytes;
  if (left == 0) --outstanding_;
  if (status.ok()) return;
  failed_io_ = true;
  failure_.Update(status);
}

std::optional<Promotion::Pieces> Promotion::TakeToVerify(size_t piece) {
  if (header_ == nullptr || !failure_.ok()) return std::nullopt;
  // What was encrypted together is decrypted together.
  const size_t together = cipher_ != nullptr ? shape_.unit_pieces() : 1;
  const size_t first = piece - piece % together;
  const Pieces taken{first, std::min(first + together, pieces_.size())};
  for (size_t i = taken.first; i < taken.end; ++i) {
    if (pieces_[i].bytes_left > 0 || pieces_[i].verifying) return std::nullopt;
  }
  for (size_t i = taken.first; i < taken.end; ++i) pieces_[i].verifying = true;
  ++outstanding_;
  return taken;
}

void Promotion::OnVerified(const Pieces& pieces, absl::Status status) {
  KVKEEP_CHECK(outstanding_ > 0);
  --outstanding_;
  if (!status.ok()) return NoteFailure(std::move(status));
  for (size_t i = pieces.first; i < pieces.end; ++i) {
    KVKEEP_CHECK(pieces_[i].verifying && !pieces_[i].ready);
    pieces_[i].ready = true;
  }
  ready_ += pieces.end - pieces.first;
}

void Promotion::EndHeader() {
  KVKEEP_CHECK(all_ready() && outstanding_ == 1);
  outstanding_ = 0;
  header_there_ = true;
}

void Promotion::NoteFailure(absl::Status why) {
  if (absl::IsUnauthenticated(why)) {
    unauthentic_ = true;
    why = absl::DataLossError(why.message());
  }
  keyless_ |= absl::IsNotFound(why);
  failure_.Update(why);
}

bool Promotion::AreReady(const Pieces& pieces) const {
  if (pieces.end == pieces_.size() && !header_there_) return false;
  const auto at = [this](size_t piece) { return pieces_.begin() + static_cast<ptrdiff_t>(piece); };
  return std::all_of(at(pieces.first), at(pieces.end), [](const Piece& one) { return one.ready; });
}

void Promotion::Wait(const Pieces& pieces, PieceWaiters::Callback ready) {
  waiters_.Add(
      pieces.first, pieces.end, [this](size_t piece) { return IsReady(piece); }, std::move(ready));
}

std::pair<Promotion::Callbacks, size_t> Promotion::TakeReady(const Pieces& became_ready) {
  Callbacks told;
  size_t looked_at = 0;
  for (size_t piece = became_ready.first; piece < became_ready.end; ++piece) {
    looked_at += waiters_.OnReady(
        piece, header_there_, [this](size_t one) { return IsReady(one); }, &told);
  }
  return {std::move(told), looked_at};
}

}  // namespace kvkeep::store_internal
