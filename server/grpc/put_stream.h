// PutStream: one Put call. Reads frames ahead, feeds them to a PutReceiver, sends results in order.
//
// At most two frames are read and not yet taken (each at most the receive limit of the server), and
// at most 64 results wait for their turn, for stable storage or for the client. At these limits the
// stream is not read, so flow control holds the client. A client that sends nothing, or does not
// take its results, for limits.stall_timeout is told so and its call ends. Time in which the client
// waits for results that are not ready does not count. Lives until gRPC has let go of it (OnDone)
// and the store of its durable chunks has answered.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>

#include "server/grpc/put_receiver.h"
#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class PutStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                        public std::enable_shared_from_this<PutStream> {
 public:
  static constexpr size_t kMaxFramesRead = 2;
  static constexpr size_t kMaxResults = 64;

  // `store` and `state` must outlive the call. `caller`: the call's tenant, or the error that the
  // call is refused with.
  static PutStream* Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                          const absl::StatusOr<TenantId>& caller);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Events since the last step. Reactions record them; the step takes them.
  struct Events {
    bool read_done = false, read_ok = false;
    bool write_done = false, write_ok = false;
    bool cancelled = false, stalled = false;
    std::vector<v1::PutResult> durable;  // answered by the store
  };
  struct Slot {
    v1::PutResult result;
    bool ready = false;
  };

  PutStream(Store* store, ServerState* state, grpc::CallbackServerContext* context);
  void Wake(absl::AnyInvocable<void(Events&)> record);
  void Step();
  void Apply(Events events);
  void SendFrontResult();
  void TakeFrame();
  void End(const absl::Status& status);
  void FinishWhenIdle();
  void WatchClient();

  Store* const store_;
  ServerState* const state_;
  std::shared_ptr<PutStream> self_;  // gRPC's reference, until OnDone
  SerialLoop loop_;
  Mutex mu_;
  Events events_ ABSL_GUARDED_BY(mu_);

  // Below: touched by the step only.
  const MonotonicTime began_;
  grpc::CallbackServerContext* const context_;  // valid until Finish was called
  std::optional<PutReceiver> receiver_;         // empty once the stream failed or was cancelled
  grpc::ByteBuffer incoming_, outgoing_;
  std::deque<grpc::ByteBuffer> frames_;
  std::deque<Slot> results_;  // in the order of chunks; the front is sent first
  bool reading_ = false, writing_ = false;
  bool client_done_ = false, cancelled_ = false, finished_ = false;
  std::optional<absl::Status> end_;  // how the call will end
  std::shared_ptr<StallWatch::StallClock> stall_;
};

}  // namespace kvkeep
