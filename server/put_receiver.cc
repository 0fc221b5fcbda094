#include "server/put_receiver.h"

#include <utility>

#include "server/check_session.h"
#include "server/convert.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

// A chunk whose payload is coming in: into a reservation, or thrown away with the answer known.
struct PutReceiver::Chunk {
  ChunkId id;
  uint64_t payload_bytes = 0;
  uint64_t received_bytes = 0;
  std::string metadata;
  bool durable = false;
  std::optional<uint64_t> expected_checksum;
  Xxh3Stream checksum;       // of what arrived, when one is expected
  Reservation reservation;   // empty: the payload is thrown away
  bool within_rate = false;  // the store was asked, and let it go on
  v1::PutResult result;

  void Reject(RejectReason reason, std::string message) {
    result.set_status(v1::PUT_STATUS_REJECTED);
    result.set_reason(ToRejectReason(reason));
    result.set_message(std::move(message));
  }
};

namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// Nothing when the namespace allows this size; else why not.
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

PutReceiver::PutReceiver(Store* store, ServerCounters* counters, TenantId caller)
    : store_(store), counters_(counters), caller_(caller) {}
PutReceiver::~PutReceiver() = default;

absl::StatusOr<std::optional<PutReceiver::FinishedChunk>> PutReceiver::OnFrame(
    std::span<const WireRun> frame) {
  KVKEEP_ASSIGN_OR_RETURN(PutFrameView view, ParsePutFrame(frame));
  counters_->put_frames.fetch_add(1, std::memory_order_relaxed);
  if (view.payload_bytes > kMaxFramePayloadBytes) {
    return Invalid(absl::StrCat("payload: ", view.payload_bytes, " bytes in one frame; at most ",
                                kMaxFramePayloadBytes, " (max_frame_bytes)"));
  }
  if (view.stream.has_value()) {
    KVKEEP_RETURN_IF_ERROR(OpenStream(*view.stream));
  } else if (!stream_open_) {
    return Invalid("stream: missing; the first frame of a stream must have it");
  }
  if (view.abort) {
    if (chunk_ == nullptr) return Invalid("abort: no chunk is in progress");
    chunk_.reset();
  }
  if (view.chunk.has_value()) KVKEEP_RETURN_IF_ERROR(OpenChunk(*std::move(view.chunk)));
  KVKEEP_RETURN_IF_ERROR(TakePayload(view));
  if (chunk_ == nullptr || chunk_->received_bytes < chunk_->payload_bytes) return std::nullopt;
  KVKEEP_ASSIGN_OR_RETURN(FinishedChunk finished, FinishChunk());
  return finished;
}

absl::Status PutReceiver::OnEnd() {
  if (chunk_ == nullptr) return absl::OkStatus();
  const absl::Status status = Invalid(absl::StrCat(
      "payload: the stream ended within chunk ", chunk_->result.ordinal(), ": ",
      chunk_->received_bytes, " of ", chunk_->payload_bytes, " bytes came; it was not stored"));
  chunk_.reset();
  return status;
}

v1::PutResult PutReceiver::NotDurable(uint32_t ordinal, const absl::Status& why) {
  v1::PutResult result;
  result.set_ordinal(ordinal);
  result.set_status(v1::PUT_STATUS_REJECTED);
  result.set_reason(v1::REJECT_REASON_NOT_DURABLE);
  result.set_message(
      absl::StrCat("durable: in G2, but not on stable storage: ", std::string(why.message())));
  return result;
}

absl::Status PutReceiver::OpenStream(const v1::PutStreamHeader& header) {
  if (stream_open_) return Invalid("stream: only in the first frame of a stream");
  KVKEEP_ASSIGN_OR_RETURN(session_,
                          CheckSession(store_, counters_, caller_, header.session_token()));
  KVKEEP_ASSIGN_OR_RETURN(ns_, ParseNamespaceDigest(header.namespace_digest()));
  KVKEEP_ASSIGN_OR_RETURN(spec_, store_->FindNamespace(session_, ns_));
  stream_open_ = true;
  return absl::OkStatus();
}

absl::Status PutReceiver::OpenChunk(v1::PutChunkHeader header) {
  if (chunk_ != nullptr) {
    return Invalid(absl::StrCat("chunk: chunk ", chunk_->result.ordinal(), " is in progress, ",
                                chunk_->received_bytes, " of ", chunk_->payload_bytes,
                                " bytes came; finish or abort it first"));
  }
  auto chunk = std::make_unique<Chunk>();
  KVKEEP_ASSIGN_OR_RETURN(chunk->id.key, ParseKey("chunk.key", header.key()));
  if (header.part() >= spec_.parts) {
    return Invalid(absl::StrCat("chunk.part: ", header.part(), "; the namespace has parts 0 to ",
                                spec_.parts - 1));
  }
  if (header.metadata().size() > kMaxTailBytes) {
    return Invalid(absl::StrCat("chunk.metadata: ", header.metadata().size(), " bytes; at most ",
                                kMaxTailBytes, " (max_metadata_bytes)"));
  }
  chunk->id.ns = ns_;
  chunk->id.part = PartId(header.part());
  chunk->payload_bytes = header.payload_bytes();
  chunk->durable = header.durable();
  if (header.has_checksum()) chunk->expected_checksum = header.checksum();
  chunk->result.set_ordinal(next_ordinal_++);
  chunk->metadata = std::move(*header.mutable_metadata());

  std::string wrong_size = WrongSize(header.payload_bytes(), spec_);
  if (wrong_size.empty()) {
    KVKEEP_RETURN_IF_ERROR(Reserve(header, chunk.get()));
    chunk->within_rate = true;
  } else {
    chunk->Reject(RejectReason::kWrongSize, std::move(wrong_size));
  }
  chunk_ = std::move(chunk);
  return absl::OkStatus();
}

absl::Status PutReceiver::Reserve(const v1::PutChunkHeader& header, Chunk* chunk) {
  PutRequest request{
      .ns = ns_,
      .key = chunk->id.key,
      .part = chunk->id.part,
      .shape = {.payload_bytes = static_cast<uint32_t>(chunk->payload_bytes),
                .tail_bytes = static_cast<uint32_t>(chunk->metadata.size())},
      .transient = header.hints().transient(),
      .no_g3 = header.hints().no_g3(),
      .durable = chunk->durable,
  };
  if (!header.hints().parent_key().empty()) {
    KVKEEP_ASSIGN_OR_RETURN(request.parent,
                            ParseKey("chunk.hints.parent_key", header.hints().parent_key()));
  }
  KVKEEP_ASSIGN_OR_RETURN(ReserveResult reserved, store_->Reserve(session_, request));
  switch (reserved.outcome) {
    case ReserveResult::Outcome::kReserved:
      chunk->reservation = std::move(reserved.reservation);
      break;
    case ReserveResult::Outcome::kPresent:
      chunk->result.set_status(v1::PUT_STATUS_PRESENT);
      break;
    case ReserveResult::Outcome::kRejected:
      // Ends the stream: else all that still comes would be read to be thrown away.
      if (reserved.over_rate) return absl::ResourceExhaustedError(reserved.message);
      chunk->Reject(reserved.reason, std::move(reserved.message));
      break;
  }
  return absl::OkStatus();
}

absl::Status PutReceiver::TakePayload(const PutFrameView& frame) {
  if (frame.payload_bytes == 0) return absl::OkStatus();
  if (chunk_ == nullptr) return Invalid("payload: no chunk is in progress");
  const uint64_t room = chunk_->payload_bytes - chunk_->received_bytes;
  if (frame.payload_bytes > room) {
    return Invalid(absl::StrCat("payload: chunk ", chunk_->result.ordinal(), " has payload_bytes ",
                                chunk_->payload_bytes, "; ", frame.payload_bytes - room,
                                " bytes more came"));
  }
  chunk_->received_bytes += frame.payload_bytes;
  if (!chunk_->reservation) {
    counters_->put_discarded_bytes.fetch_add(frame.payload_bytes, std::memory_order_relaxed);
    // As it comes: one that is PRESENT need not be sent to its end, and one that is too large to be
    // a chunk may be sent for ever, so that it is asked for with every frame.
    return store_->ChargeDiscarded(session_, frame.payload_bytes, chunk_->within_rate);
  }
  for (const WireRun& run : frame.payload) {
    chunk_->reservation.Append(run);
    if (chunk_->expected_checksum) chunk_->checksum.Append(run);
  }
  counters_->put_bytes.fetch_add(frame.payload_bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<PutReceiver::FinishedChunk> PutReceiver::FinishChunk() {
  const std::unique_ptr<Chunk> chunk = std::move(chunk_);
  KVKEEP_CHECK(chunk->received_bytes == chunk->payload_bytes);
  if (chunk->reservation) {
    const bool right =
        !chunk->expected_checksum || *chunk->expected_checksum == chunk->checksum.Digest();
    if (right) {
      KVKEEP_ASSIGN_OR_RETURN(const SealOutcome outcome,
                              chunk->reservation.Seal(AsBytes(chunk->metadata)));
      chunk->result.set_status(outcome == SealOutcome::kStored ? v1::PUT_STATUS_STORED
                                                               : v1::PUT_STATUS_PRESENT);
    } else {
      chunk->reservation.Abort();
      chunk->Reject(RejectReason::kWrongChecksum,
                    absl::StrFormat("chunk.checksum: %016x; the payload that came has %016x",
                                    *chunk->expected_checksum, chunk->checksum.Digest()));
    }
  }
  FinishedChunk finished{.result = std::move(chunk->result)};
  if (chunk->durable && finished.result.status() != v1::PUT_STATUS_REJECTED) {
    finished.await_durable = chunk->id;
  }
  return finished;
}

}  // namespace kvkeep
