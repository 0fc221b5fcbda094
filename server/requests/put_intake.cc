#include "server/requests/put_intake.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "server/requests/check_session.h"
#include "server/requests/convert.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

static_assert(static_cast<int>(ChunkPut::Answer::kStored) == v1::PUT_STATUS_STORED);
static_assert(static_cast<int>(ChunkPut::Answer::kPresent) == v1::PUT_STATUS_PRESENT);
static_assert(static_cast<int>(ChunkPut::Answer::kRejected) == v1::PUT_STATUS_REJECTED);

v1::PutResult PutIntake::FinishedChunk::Result() const {
  v1::PutResult result;
  result.set_ordinal(ordinal);
  result.set_status(static_cast<v1::PutStatus>(put.answer()));
  if (put.answer() != ChunkPut::Answer::kRejected) return result;
  result.set_reason(ToRejectReason(put.reason()));
  result.set_message(put.message());
  return result;
}

namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// Returns why the namespace does not allow this size; empty if it does.
std::string WrongSize(uint64_t payload_bytes, const NamespaceSpec& spec) {
  if (payload_bytes < kMinPayloadBytes || payload_bytes > kMaxPayloadBytes) {
    return absl::StrCat("payload_bytes: ", payload_bytes, "; must be ", kMinPayloadBytes, " to ",
                        kMaxPayloadBytes);
  }
  if (spec.bytes_per_part != 0 && payload_bytes != spec.bytes_per_part) {
    return absl::StrCat("payload_bytes: ", payload_bytes, "; the namespace's bytes_per_part is ",
                        spec.bytes_per_part);
  }
  return "";
}

}  // namespace

PutIntake::PutIntake(Store* store, ServerCounters* counters, TenantId caller)
    : store_(store), counters_(counters), caller_(caller) {}

absl::Status PutIntake::OpenStream(const v1::PutStreamHeader* header) {
  if (header == nullptr) {
    if (stream_open_) return absl::OkStatus();
    return Invalid("stream: missing; the first frame of a stream must have it");
  }
  if (stream_open_) return Invalid("stream: only in the first frame of a stream");
  KVKEEP_ASSIGN_OR_RETURN(session_,
                          CheckSession(store_, counters_, caller_, header->session_token()));
  KVKEEP_ASSIGN_OR_RETURN(ns_, ParseNamespaceDigest(header->namespace_digest()));
  KVKEEP_ASSIGN_OR_RETURN(spec_, store_->FindNamespace(session_, ns_));
  stream_open_ = true;
  return absl::OkStatus();
}

absl::Status PutIntake::OpenChunk(v1::PutChunkHeader header) {
  KVKEEP_CHECK(stream_open_);
  if (chunk_.has_value()) {
    return Invalid(absl::StrCat("chunk: chunk ", chunk_->ordinal, " is in progress, ",
                                chunk_->received_bytes, " of ", chunk_->payload_bytes,
                                " bytes came; finish or abort it first"));
  }
  Chunk chunk;
  KVKEEP_ASSIGN_OR_RETURN(const ChunkKey key, ParseKey("chunk.key", header.key()));
  if (header.part() >= spec_.parts) {
    return Invalid(absl::StrCat("chunk.part: ", header.part(), "; the namespace has parts 0 to ",
                                spec_.parts - 1));
  }
  if (header.metadata().size() > kMaxTailBytes) {
    return Invalid(absl::StrCat("chunk.metadata: ", header.metadata().size(), " bytes; at most ",
                                kMaxTailBytes, " (max_metadata_bytes)"));
  }
  chunk.payload_bytes = header.payload_bytes();
  if (header.has_checksum()) chunk.expected_checksum = header.checksum();
  chunk.ordinal = next_ordinal_++;
  chunk.metadata = std::move(*header.mutable_metadata());

  std::string wrong_size = WrongSize(header.payload_bytes(), spec_);
  if (wrong_size.empty()) {
    KVKEEP_RETURN_IF_ERROR(Reserve(header, key, chunk));
    chunk.within_rate = true;
  } else {
    chunk.put.Reject(RejectReason::kWrongSize, std::move(wrong_size));
  }
  chunk_ = std::move(chunk);
  return absl::OkStatus();
}

absl::Status PutIntake::Reserve(const v1::PutChunkHeader& header, const ChunkKey& key,
                                Chunk& chunk) {
  PutRequest request{
      .ns = ns_,
      .key = key,
      .part = PartId(header.part()),
      .shape = {.payload_bytes = static_cast<uint32_t>(chunk.payload_bytes),
                .tail_bytes = static_cast<uint32_t>(chunk.metadata.size())},
      .transient = header.hints().transient(),
      .no_g3 = header.hints().no_g3(),
      .durable = header.durable(),
  };
  if (!header.hints().parent_key().empty()) {
    KVKEEP_ASSIGN_OR_RETURN(request.parent,
                            ParseKey("chunk.hints.parent_key", header.hints().parent_key()));
  }
  KVKEEP_ASSIGN_OR_RETURN(const ChunkPut::Reserved reserved,
                          chunk.put.Reserve(*store_, session_, request));
  // Ends the stream: otherwise all further frames would be read only to be thrown away.
  if (reserved == ChunkPut::Reserved::kOverRate) {
    return absl::ResourceExhaustedError(chunk.put.message());
  }
  return absl::OkStatus();
}

absl::Status PutIntake::AbortChunk() {
  if (!chunk_.has_value()) return Invalid("abort: no chunk is in progress");
  chunk_.reset();
  return absl::OkStatus();
}

Reservation* PutIntake::reservation() {
  Reservation& reservation = chunk_->put.reservation();
  return reservation ? &reservation : nullptr;
}

absl::Status PutIntake::Take(uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (!chunk_.has_value()) return Invalid("payload: no chunk is in progress");
  const uint64_t room = chunk_->payload_bytes - chunk_->received_bytes;
  if (bytes > room) {
    return Invalid(absl::StrCat("payload: chunk ", chunk_->ordinal, " has payload_bytes ",
                                chunk_->payload_bytes, "; ", bytes - room, " bytes more came"));
  }
  chunk_->received_bytes += bytes;
  if (chunk_->put.reservation()) {
    counters_->put_bytes.fetch_add(bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  counters_->put_discarded_bytes.fetch_add(bytes, std::memory_order_relaxed);
  // Charged as it comes: a client may stop sending a PRESENT chunk, and may send one that is too
  // large without end.
  return store_->ChargeDiscarded(session_, bytes, chunk_->within_rate);
}

bool PutIntake::CheckPiece(size_t piece, uint64_t expected) {
  return chunk_->put.CheckPayload(expected, chunk_->put.reservation().PieceChecksum(piece));
}

absl::StatusOr<PutIntake::FinishedChunk> PutIntake::Finish(std::optional<uint64_t> came) {
  KVKEEP_CHECK(chunk_.has_value() && complete());
  Chunk chunk = *std::move(chunk_);
  chunk_.reset();
  ChunkPut& put = chunk.put;
  if (put.reservation()) {
    if (chunk.expected_checksum && !came) came = put.reservation().PayloadChecksum();
    const bool right =
        !chunk.expected_checksum || put.CheckPayload(*chunk.expected_checksum, *came);
    if (right) KVKEEP_RETURN_IF_ERROR(put.Seal(AsBytes(chunk.metadata)));
  }
  return FinishedChunk{.ordinal = chunk.ordinal, .put = std::move(put)};
}

absl::Status PutIntake::End() {
  if (!chunk_.has_value()) return absl::OkStatus();
  const absl::Status status = Invalid(absl::StrCat(
      "payload: the stream ended within chunk ", chunk_->ordinal, ": ", chunk_->received_bytes,
      " of ", chunk_->payload_bytes, " bytes came; it was not stored"));
  chunk_.reset();
  return status;
}

}  // namespace kvkeep
