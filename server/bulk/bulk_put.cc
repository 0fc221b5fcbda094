#include "server/bulk/bulk_put.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status InvalidPut(const std::string& message) { return absl::InvalidArgumentError(message); }

}  // namespace

BulkPut::BulkPut(Store* store, ServerState* state, TenantId caller)
    : counters_(&state->counters), intake_(store, &state->counters, caller) {}

absl::Status BulkPut::Open(v1::PutFrame frame, uint64_t payload_bytes) {
  KVKEEP_CHECK(complete());
  if (frame.abort() || !frame.payload().empty()) {
    return InvalidPut("PutFrame: abort and payload: not by the bulk door");
  }
  if (!frame.has_chunk()) return InvalidPut("PutFrame.chunk: missing; each frame has one");
  KVKEEP_RETURN_IF_ERROR(intake_.OpenStream(frame.has_stream() ? &frame.stream() : nullptr));
  const uint64_t wanted = frame.chunk().payload_bytes();
  if (wanted == 0 || wanted > kMaxPayloadBytes) {
    return InvalidPut(
        absl::StrCat("chunk.payload_bytes: ", wanted, "; must be 1 to ", kMaxPayloadBytes));
  }
  const uint64_t with_trailer = wanted + PieceCount(wanted) * sizeof(uint64_t);
  if (payload_bytes != with_trailer) {
    return InvalidPut(absl::StrCat("payload_bytes of the frame: ", payload_bytes, "; must be ",
                                   with_trailer, ", the chunk and a checksum of each piece"));
  }
  KVKEEP_RETURN_IF_ERROR(intake_.OpenChunk(std::move(*frame.mutable_chunk())));
  counters_->put_frames.fetch_add(1, std::memory_order_relaxed);
  payload_bytes_ = wanted;
  frame_bytes_ = with_trailer;
  came_ = 0;
  trailer_.assign(PieceCount(wanted), 0);
  return absl::OkStatus();
}

void BulkPut::AddPlaces(std::span<std::byte> scratch, std::vector<iovec>* places) {
  KVKEEP_CHECK(!complete());
  uint64_t at = came_;
  if (at < payload_bytes_) {
    const uint64_t end = std::min(payload_bytes_, at - at % kPieceBytes + kPieceBytes);
    Reservation* const reservation = intake_.reservation();
    for (size_t run = 0; at < end; ++run) {
      if (run == kMostRuns) return;
      const std::span<std::byte> place =
          reservation == nullptr ? scratch.first(std::min<uint64_t>(scratch.size(), end - at))
                                 : reservation->PayloadPlace(at, end - at);
      places->push_back({.iov_base = place.data(), .iov_len = place.size()});
      at += place.size();
    }
    if (end < payload_bytes_) return;
  }
  const std::span<std::byte> trailer = std::as_writable_bytes(std::span(trailer_));
  const std::span<std::byte> left = trailer.subspan(at - payload_bytes_);
  places->push_back({.iov_base = left.data(), .iov_len = left.size()});
}

absl::Status BulkPut::Came(uint64_t bytes) {
  KVKEEP_CHECK(bytes <= frame_bytes_ - came_);
  const uint64_t of_payload = std::min(bytes, payload_bytes_ - std::min(came_, payload_bytes_));
  if (of_payload > 0) KVKEEP_RETURN_IF_ERROR(CameOfPayload(of_payload));
  came_ += bytes - of_payload;
  return absl::OkStatus();
}

absl::Status BulkPut::CameOfPayload(uint64_t bytes) {
  const uint64_t before = came_;
  came_ += bytes;
  Reservation* const reservation = intake_.reservation();
  const bool whole = came_ % kPieceBytes == 0 || came_ == payload_bytes_;
  if (reservation != nullptr && whole) reservation->ChecksumPiece(before / kPieceBytes);
  return intake_.Take(bytes);
}

absl::StatusOr<PutIntake::FinishedChunk> BulkPut::Finish() {
  KVKEEP_CHECK(complete());
  payload_bytes_ = frame_bytes_ = came_ = 0;
  for (size_t piece = 0; piece < trailer_.size() && intake_.reservation() != nullptr; ++piece) {
    (void)intake_.CheckPiece(piece, trailer_[piece]);
  }
  return intake_.Finish();
}

}  // namespace kvkeep
