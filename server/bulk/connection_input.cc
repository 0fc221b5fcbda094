// The bytes that a client of the bulk door sends (connection.h).
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/bulk/connection.h"
#include "server/bulk/message_share.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint32_t kMaxPutMessageBytes = 64 * kKiB;
// Messages up to this size cost no more than the connection itself.
constexpr uint32_t kSmallMessageBytes = 4 * kKiB;

absl::Status WrongFrame(const std::string& message) { return absl::InvalidArgumentError(message); }

}  // namespace

bool BulkConnection::may_read() const {
  switch (phase_) {
    case Phase::kHello:
    case Phase::kLingering:
      return true;
    case Phase::kIdle:
      // A client that sends calls and reads no answers waits.
      return out_.empty() && !ending_soon_;
    case Phase::kPutting:
      return !put_done_ && results_.size() + out_.size() < kMaxResults;
    case Phase::kGetting:
    case Phase::kEnding:
    case Phase::kClosed:
      break;
  }
  return false;
}

bool BulkConnection::ReadSome() {
  if (!may_read()) return false;
  if (phase_ == Phase::kLingering) return Linger();
  if (UseBuffered()) return true;
  AddPlaces();
  const ByteStream::Moved moved = stream_->Read(places_);
  switch (moved.outcome) {
    case ByteStream::Outcome::kMoved:
      moved_ = deps_.state->clock->Now();
      Distribute(moved.bytes);
      return true;
    case ByteStream::Outcome::kWait:
      return false;
    case ByteStream::Outcome::kClosed:
    case ByteStream::Outcome::kBroken:
      Close();
  }
  return false;
}

bool BulkConnection::Linger() {
  const iovec place{.iov_base = deps_.scratch.data(), .iov_len = deps_.scratch.size()};
  const ByteStream::Moved moved = stream_->Read({&place, 1});
  if (moved.outcome == ByteStream::Outcome::kMoved) return true;
  if (moved.outcome != ByteStream::Outcome::kWait) Close();
  return false;
}

std::span<std::byte> BulkConnection::message_left() {
  return std::as_writable_bytes(std::span(message_)).subspan(message_came_);
}

// Takes a step with the bytes that were read ahead. Returns false if more bytes must come first.
bool BulkConnection::UseBuffered() {
  const size_t held = filled_ - read_;
  if (has_message() && !in_payload_) {
    const absl::Status served = OnFrame();
    if (!served.ok()) Fail(served);
    return true;
  }
  if (!head_.has_value()) {
    if (held < bulk::kHeadBytes) return false;
    const absl::Status taken = TakeHead();
    if (!taken.ok()) Fail(taken);
    return true;
  }
  if (held == 0) return false;
  AddPlaces();
  size_t used = 0;
  for (const iovec& place : places_) {
    const size_t step = std::min({place.iov_len, held - used, wanted_ - used});
    std::memcpy(place.iov_base, buffer_.data() + read_ + used, step);
    used += step;
  }
  read_ += used;
  TakeOfFrame(used);
  return true;
}

// Sets the places of the bytes that come next: those of the frame, then the buffer.
void BulkConnection::AddPlaces() {
  places_.clear();
  bool to_its_end = true;
  if (in_payload_) {
    put_->AddPlaces(deps_.scratch, &places_);
  } else if (head_.has_value()) {
    const std::span<std::byte> left = message_left();
    places_.push_back({.iov_base = left.data(), .iov_len = left.size()});
  }
  wanted_ = 0;
  for (const iovec& place : places_) wanted_ += place.iov_len;
  if (in_payload_) to_its_end = wanted_ == put_->left();
  if (!to_its_end) return;  // what follows is payload, too
  if (read_ == filled_) read_ = filled_ = 0;
  if (read_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + read_, filled_ - read_);
    filled_ -= read_;
    read_ = 0;
  }
  places_.push_back({.iov_base = buffer_.data() + filled_, .iov_len = buffer_.size() - filled_});
}

void BulkConnection::Distribute(size_t bytes) {
  const size_t of_frame = std::min(bytes, wanted_);
  filled_ += bytes - of_frame;
  if (of_frame > 0) TakeOfFrame(of_frame);
}

void BulkConnection::TakeOfFrame(size_t bytes) {
  if (!in_payload_) {
    message_came_ += bytes;
    return;
  }
  absl::Status taken = put_->Came(bytes);
  if (taken.ok() && put_->complete()) taken = EndOfPayload();
  if (!taken.ok()) Fail(taken);
}

absl::Status BulkConnection::TakeHead() {
  const bulk::FrameHead head =
      bulk::DecodeHead(std::span(buffer_).subspan(read_).first<bulk::kHeadBytes>());
  KVKEEP_RETURN_IF_ERROR(CheckHead(head));
  read_ += bulk::kHeadBytes;
  if (head.message_bytes > kSmallMessageBytes) {
    KVKEEP_ASSIGN_OR_RETURN(share_, Share::Take(deps_.memory, head.message_bytes));
  }
  message_.assign(head.message_bytes, '\0');
  message_came_ = 0;
  head_ = head;
  return absl::OkStatus();
}

absl::Status BulkConnection::CheckHead(const bulk::FrameHead& head) const {
  using bulk::FrameKind;
  uint32_t most = 0;
  bool due = false;
  switch (head.kind) {
    case FrameKind::kHello:
      most = bulk::kMaxHelloBytes;
      due = phase_ == Phase::kHello;
      break;
    case FrameKind::kGet:
      most = bulk::kMaxMessageBytes;
      due = phase_ == Phase::kIdle;
      break;
    case FrameKind::kPut:
      most = kMaxPutMessageBytes;
      due = phase_ == Phase::kIdle || phase_ == Phase::kPutting;
      break;
    case FrameKind::kPutDone:
      due = phase_ == Phase::kPutting;
      break;
    default:
      break;
  }
  const auto kind = static_cast<uint32_t>(head.kind);
  if (!due) return WrongFrame(absl::StrCat("frame: kind ", kind, " is not due here"));
  if (head.message_bytes > most) {
    return WrongFrame(
        absl::StrCat("message_bytes: ", head.message_bytes, "; of kind ", kind, " at most ", most));
  }
  if (head.kind != FrameKind::kPut && head.payload_bytes != 0) {
    return WrongFrame(
        absl::StrCat("payload_bytes: ", head.payload_bytes, "; kind ", kind, " has no payload"));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
