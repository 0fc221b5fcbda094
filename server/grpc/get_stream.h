// GetStream: one Get call. Sends the frames of a GetFrames, one at a time.
//
// No byte is copied here: a frame's payload is slices over the pinned chunk in the arena, and every
// slice holds a reference to the pin. The next frame is prepared while one is being sent. Once gRPC
// took a chunk's last frame, only the transport's one write in progress can still hold slices of
// it. A client that stops reading is stopped by flow control; a frame that it does not take within
// limits.stall_timeout ends the call.
//
// Reactions and the store's answers come on any thread; one at a time runs the step. Owned by gRPC,
// until OnDone.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "server/requests/get_frames.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class GetStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public std::enable_shared_from_this<GetStream> {
 public:
  // `plan` or the error that the call ends with. `store` and `state` must outlive the call.
  static GetStream* Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                          absl::StatusOr<GetPlan> plan);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Events {
    bool write_done = false, write_ok = false;
    bool cancelled = false, stalled = false;
  };

  GetStream(Store* store, ServerState* state, grpc::CallbackServerContext* context);
  void Wake(absl::AnyInvocable<void(Events&)> record);
  void Step();
  void Apply(Events events);
  void Send(const GetFrames::Frame& frame);
  void FinishWith(const absl::Status& status);

  Store* const store_;
  ServerState* const state_;
  std::shared_ptr<GetStream> self_;  // gRPC's reference, until OnDone
  SerialLoop loop_;
  Mutex mu_;
  Events events_ ABSL_GUARDED_BY(mu_);

  // Below: touched by the step only.
  const MonotonicTime began_;
  grpc::CallbackServerContext* const context_;  // valid until Finish was called
  std::shared_ptr<GetFrames> frames_;           // null: the call is refused
  absl::Status refused_;
  grpc::ByteBuffer frame_;
  bool writing_ = false, cancelled_ = false, finished_ = false;
  std::shared_ptr<StallWatch::StallClock> stall_;  // runs while gRPC has a frame
};

}  // namespace kvkeep
