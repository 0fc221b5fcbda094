// PutReceiver: turns a Put stream, frame by frame, into reservations of the store.
//
// Knows nothing of gRPC's streams: frames come in as memory runs, finished chunks go out as
// results. Payload bytes are copied once, from the frame straight into the reserved place;
// PutIntake does the rest. One thread at a time. Destroying it aborts the chunk in progress.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <optional>
#include <span>

#include "server/grpc/put_frame.h"
#include "server/requests/put_intake.h"
#include "tiers/base/checksum.h"
#include "tiers/store/store.h"

namespace kvkeep {

class PutReceiver {
 public:
  using FinishedChunk = PutIntake::FinishedChunk;

  // Both must outlive the receiver. `caller`: the tenant that sends the frames.
  PutReceiver(Store* store, ServerCounters* counters, TenantId caller);

  // Takes one frame; answers with the chunk that it finished, if any. An error ends the stream: the
  // client broke the protocol (InvalidArgument), its session is gone (FailedPrecondition), or its
  // tenant is over a rate (ResourceExhausted).
  absl::StatusOr<std::optional<FinishedChunk>> OnFrame(std::span<const WireRun> frame);
  // Ends the stream after the client's last frame. InvalidArgument: a chunk is unfinished; it is
  // aborted.
  absl::Status OnEnd() { return intake_.End(); }

 private:
  absl::Status TakePayload(const PutFrameView& frame);

  ServerCounters* const counters_;
  PutIntake intake_;
  Xxh3Stream checksum_;  // of what arrived of the chunk in progress, when one is expected
};

}  // namespace kvkeep
