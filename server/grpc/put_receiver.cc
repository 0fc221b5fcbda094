#include "server/grpc/put_receiver.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "server/requests/convert.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

PutReceiver::PutReceiver(Store* store, ServerCounters* counters, TenantId caller)
    : counters_(counters), intake_(store, counters, caller) {}

absl::StatusOr<std::optional<PutReceiver::FinishedChunk>> PutReceiver::OnFrame(
    std::span<const WireRun> frame) {
  KVKEEP_ASSIGN_OR_RETURN(PutFrameView view, ParsePutFrame(frame));
  counters_->put_frames.fetch_add(1, std::memory_order_relaxed);
  if (view.payload_bytes > kMaxFramePayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("payload: ", view.payload_bytes,
                                                   " bytes in one frame; at most ",
                                                   kMaxFramePayloadBytes, " (max_frame_bytes)"));
  }
  KVKEEP_RETURN_IF_ERROR(intake_.OpenStream(view.stream.has_value() ? &*view.stream : nullptr));
  if (view.abort) KVKEEP_RETURN_IF_ERROR(intake_.AbortChunk());
  if (view.chunk.has_value()) {
    KVKEEP_RETURN_IF_ERROR(intake_.OpenChunk(*std::move(view.chunk)));
    checksum_ = Xxh3Stream();
  }
  KVKEEP_RETURN_IF_ERROR(TakePayload(view));
  if (!intake_.in_progress() || !intake_.complete()) return std::nullopt;
  std::optional<uint64_t> came;
  if (intake_.expects_checksum()) came = checksum_.Digest();
  KVKEEP_ASSIGN_OR_RETURN(FinishedChunk finished, intake_.Finish(came));
  return finished;
}

absl::Status PutReceiver::TakePayload(const PutFrameView& frame) {
  KVKEEP_RETURN_IF_ERROR(intake_.Take(frame.payload_bytes));
  if (frame.payload_bytes == 0) return absl::OkStatus();
  Reservation* const reservation = intake_.reservation();
  if (reservation == nullptr) return absl::OkStatus();
  for (const WireRun& run : frame.payload) {
    reservation->Append(run);
    if (intake_.expects_checksum()) checksum_.Append(run);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
