#include "server/fleet/image_taker.h"

#include <algorithm>
#include <cstring>

#include "server/fleet/peer_wire.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

bool ImageTaker::complete() const { return at_ == image_bytes(); }

uint64_t ImageTaker::body_bytes() const { return at_ - std::min<uint64_t>(at_, kHeaderBytes); }

absl::Status ImageTaker::Take(std::span<const WireRun> message) {
  const absl::StatusOr<ReceivedFetchFrame> frame = ParseFetchFrame(message);
  if (!frame.ok()) return absl::DataLossError("a frame cannot be parsed");
  const uint64_t used = request_.shape.used_bytes();
  const bool first = at_ == 0;
  if (first && (frame->header.size() != kHeaderBytes || frame->offset != 0)) {
    return absl::DataLossError("the first frame has no header page");
  }
  if (!first && (complete() || !frame->header.empty() || frame->offset != at_)) {
    return absl::DataLossError("a frame is not the next one of the image");
  }
  const uint64_t begin = first ? kHeaderBytes : at_;
  if (frame->image_bytes == 0 || frame->image_bytes > used - begin) {
    return absl::DataLossError("a frame has no bytes, or more than the image has");
  }
  if (first) {
    std::memcpy(request_.header.data(), frame->header.data(), kHeaderBytes);
    KVKEEP_RETURN_IF_ERROR(read_.check_header());
    at_ = told_ = kHeaderBytes;
    request_.header_done(absl::OkStatus());
  }
  for (WireRun run : frame->image) {
    while (!run.empty()) {
      const std::span<std::byte> to = request_.memory(at_, run.size());
      KVKEEP_CHECK(!to.empty() && to.size() <= run.size());
      std::memcpy(to.data(), run.data(), to.size());
      run = run.subspan(to.size());
      at_ += to.size();
    }
  }
  if (at_ == used) {
    ZeroTheRest();
    at_ = image_bytes();
  }
  // Only whole pieces, so that each is told once.
  uint64_t whole = told_;
  for (size_t piece = (told_ - kHeaderBytes) / kPieceBytes; piece < request_.shape.pieces();
       ++piece) {
    const uint64_t end = request_.shape.piece_end(piece);
    if (end > at_) break;
    whole = end;
  }
  TellPieces(whole, absl::OkStatus());
  return absl::OkStatus();
}

void ImageTaker::TellRest(const absl::Status& why) {
  KVKEEP_CHECK(!why.ok());
  if (told_ == 0) {
    told_ = kHeaderBytes;
    request_.header_done(why);
  }
  TellPieces(image_bytes(), why);
}

// Reports the bytes up to `to`, where a piece ends.
void ImageTaker::TellPieces(uint64_t to, const absl::Status& status) {
  while (told_ < to) {
    // The last piece has the tail, too.
    const size_t piece =
        std::min<size_t>((told_ - kHeaderBytes) / kPieceBytes, request_.shape.pieces() - 1);
    const uint64_t end = std::min(request_.shape.piece_end(piece), to);
    const uint64_t bytes = end - told_;
    told_ = end;
    request_.piece_done(piece, bytes, status);
  }
}

// Fills what follows the image's last used byte, which no node sends.
void ImageTaker::ZeroTheRest() {
  for (uint64_t at = request_.shape.used_bytes(); at < image_bytes();) {
    const std::span<std::byte> rest = request_.memory(at, image_bytes() - at);
    KVKEEP_CHECK(!rest.empty());
    std::fill(rest.begin(), rest.end(), std::byte{0});
    at += rest.size();
  }
}

}  // namespace kvkeep
