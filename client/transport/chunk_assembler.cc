#include "client/transport/chunk_assembler.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>

#include "client/transport/check_call.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

absl::Status Broken(size_t chunk, absl::string_view what) {
  return absl::InternalError(absl::StrCat("get: the daemon broke the protocol at chunk ", chunk,
                                          " of the call: ", std::string(what)));
}

}  // namespace

ChunkAssembler::ChunkAssembler(GetOptions options, size_t keys, size_t parts)
    : options_(std::move(options)),
      destinations_(options_),
      keys_(keys),
      parts_(parts),
      progress_(keys * parts),
      outcomes_(keys * parts) {
  KVKEEP_CHECK(CheckDestinations(options_, keys * parts).ok());
}

absl::Status ChunkAssembler::Accept(const ChunkFrame& frame) {
  KVKEEP_RETURN_IF_ERROR(Open(frame).status());
  in_place_ = false;
  return Close(frame, /*right=*/false);
}

absl::StatusOr<std::span<std::byte>> ChunkAssembler::Open(const ChunkFrame& frame) {
  in_place_ = false;
  if (frame.key_index >= keys_ || frame.part_index >= parts_) {
    return absl::InternalError(
        absl::StrFormat("get: the daemon sent key %d part %d of a call about %d keys and %d parts",
                        frame.key_index, frame.part_index, keys_, parts_));
  }
  const size_t chunk = frame.key_index * parts_ + frame.part_index;
  Progress& progress = progress_[chunk];
  if (progress.finished) return Broken(chunk, "a frame after its last one");
  if (frame.status != ChunkFrame::kHit) return std::span<std::byte>();
  if (!progress.started) KVKEEP_RETURN_IF_ERROR(Begin(chunk, frame));
  KVKEEP_RETURN_IF_ERROR(CheckBytes(chunk, frame));
  if (progress.fate != GetStatus::kHit) return std::span<std::byte>();
  const std::span<std::byte> place = progress.destination.Place(frame.payload_size);
  in_place_ = !place.empty();
  return place;
}

absl::Status ChunkAssembler::Close(const ChunkFrame& frame, bool right) {
  const size_t chunk = frame.key_index * parts_ + frame.part_index;
  Progress& progress = progress_[chunk];
  switch (frame.status) {
    case ChunkFrame::kHit:
      break;
    case ChunkFrame::kCorrupt:
      Finish(chunk, GetStatus::kCorrupt);
      return absl::OkStatus();
    case ChunkFrame::kBusy:
      Finish(chunk, GetStatus::kBusy);
      return absl::OkStatus();
    default:
      Finish(chunk, GetStatus::kMiss);
      return absl::OkStatus();
  }
  if (progress.fate == GetStatus::kHit) {
    if (in_place_) {
      progress.destination.Skip(frame.payload_size);
    } else {
      right = Copy(frame, progress.destination);
    }
    if (!right) progress.fate = GetStatus::kCorrupt;
  }
  progress.received += frame.payload_size;
  if (!frame.last) return absl::OkStatus();
  if (progress.received != progress.expected) return Broken(chunk, "it ended before it was whole");
  outcomes_[chunk].metadata = frame.metadata;
  if (progress.fate == GetStatus::kCorrupt) ++corrupt_;
  Finish(chunk, progress.fate);
  return absl::OkStatus();
}

absl::Status ChunkAssembler::Begin(size_t chunk, const ChunkFrame& frame) {
  if (frame.payload_bytes < kMinPayloadBytes || frame.payload_bytes > kMaxPayloadBytes) {
    return Broken(chunk, absl::StrCat("payload_bytes is ", frame.payload_bytes));
  }
  Progress& progress = progress_[chunk];
  progress.started = true;
  outcomes_[chunk].payload_bytes = frame.payload_bytes;
  const uint64_t begin =
      std::min<uint64_t>(uint64_t{options_.first_piece} * kPieceBytes, frame.payload_bytes);
  uint64_t end = frame.payload_bytes;
  if (options_.pieces > 0) end = std::min<uint64_t>(end, begin + options_.pieces * kPieceBytes);
  progress.expected = end - begin;
  progress.destination = destinations_.Of(options_, chunk, progress.expected);
  if (progress.destination.bytes() < progress.expected) progress.fate = GetStatus::kTooSmall;
  return absl::OkStatus();
}

absl::Status ChunkAssembler::CheckBytes(size_t chunk, const ChunkFrame& frame) const {
  const Progress& progress = progress_[chunk];
  if (frame.payload_bytes != outcomes_[chunk].payload_bytes) {
    return Broken(chunk, "payload_bytes changed between frames");
  }
  const uint64_t begin = uint64_t{options_.first_piece} * kPieceBytes;
  if (frame.payload_size > progress.expected - progress.received) {
    return Broken(chunk, "more bytes than the chunk has");
  }
  if (frame.payload_size > 0 && frame.offset != begin + progress.received) {
    return Broken(chunk, absl::StrCat("offset ", frame.offset, " where ", begin + progress.received,
                                      " was due"));
  }
  if (progress.received % kPieceBytes != 0 && frame.payload_size > 0) {
    return Broken(chunk, "a frame that does not start at a piece");
  }
  return absl::OkStatus();
}

bool ChunkAssembler::Copy(const ChunkFrame& frame, Destination& to) const {
  PayloadCopier copier;  // frames hold whole pieces, so each frame is a payload of its own
  for (const std::span<const std::byte> run : frame.payload) {
    to.Fill(run, options_.verify ? &copier : nullptr);
  }
  return !options_.verify || copier.Finish() == frame.piece_checksums;
}

void ChunkAssembler::Finish(size_t chunk, GetStatus status) {
  progress_[chunk].finished = true;
  ++finished_;
  GetOutcome& outcome = outcomes_[chunk];
  outcome.status = status;
  if (status != GetStatus::kHit) {
    outcome.metadata.clear();
    return;
  }
  outcome.bytes = progress_[chunk].expected;
  delivered_bytes_ += outcome.bytes;
}

}  // namespace kvkeep::client
