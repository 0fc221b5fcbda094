// GetStream: one Get call. Sends the chunks of keys x parts in order, in frames of up to 2 whole
// pieces, each as soon as its pieces are in place: a chunk that comes from NVMe streams piece by
// piece, and the client copies and verifies one frame while the next is coming.
//
// No byte is copied here: a frame's payload is slices over the pinned chunk in the arena, and every
// slice holds a reference to the pin. The next chunk is pinned (its promotion started) while one is
// being sent. Pinned memory is bounded: a stream pins at most kWindowChunks that have frames to
// send, and hands gRPC one frame at a time. A chunk leaves the window when gRPC took its last
// frame; after that only the transport's one write in progress can still hold slices of it.
// PinBudget limits the bytes that the streams of a session, and of a tenant, pin: further streams
// wait, and the window is one chunk while there is no room for a second. A client that stops
// reading is stopped by flow control; a frame that it does not take within limits.stall_timeout
// ends the call.
//
// A plan that asks beyond the node begins once that search is over: a chunk that is on its way then
// is sent like one that comes from NVMe.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>

#include "server/grpc/get_frame.h"
#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "server/requests/convert.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

// A GetRequest, checked.
struct GetPlan {
  SessionToken session;
  TenantId tenant;  // of the session
  OwnedChunkSet chunks;
  LeaseId lease;
  uint32_t first_piece = 0;
  uint32_t pieces = 0;  // 0: to the end
  bool metadata = false;
  bool transient = false;
  BeyondOptions beyond;  // asks only without a lease
};

class GetStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public std::enable_shared_from_this<GetStream> {
 public:
  static constexpr size_t kWindowChunks = 2;
  static constexpr size_t kFramePieces = 2;  // with more, less is done at the same time

  // `plan` or the error that the call ends with. `store` and `state` must outlive the call.
  static GetStream* Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                          absl::StatusOr<GetPlan> plan);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Pin;
  // A chunk of the window: pinned when it is a hit.
  struct Chunk {
    size_t index = 0;  // into keys x parts
    ReadOutcome outcome = ReadOutcome::kMiss;
    std::shared_ptr<Pin> pin;
    size_t next_piece = 0, end_piece = 0;  // still to be sent
    bool begun = false;                    // a frame was sent
    std::vector<uint64_t> checksums;       // of all pieces, once the first are in place
  };
  struct Events {
    bool write_done = false, write_ok = false;
    bool cancelled = false, stalled = false;
    bool may_pin = false;               // there is room now
    bool looked_beyond = false;         // the store's answer, whatever it is
    std::optional<absl::Status> ready;  // the store's answer about the next frame's pieces
  };

  GetStream(Store* store, ServerState* state, grpc::CallbackServerContext* context);
  void LookBeyond();
  void Wake(absl::AnyInvocable<void(Events&)> record);
  void Step();
  void Apply(Events events);
  // Returns false if there is no room to pin the next chunk; the stream is woken when there is.
  bool MayPinNext();
  PinBudget::Holder holder() const { return {plan_.tenant, plan_.session}; }
  void FillWindow();
  absl::StatusOr<Chunk> Pinned(size_t index);
  void AskReady(const Chunk& chunk);
  size_t FramePieces(const Chunk& chunk) const;
  bool LastFrame(const Chunk& chunk) const;
  void SendOutcome(const Chunk& chunk, v1::ChunkStatus status);
  void SendPieces(Chunk* chunk);
  GetFrameHeader HeaderOf(const Chunk& chunk, v1::ChunkStatus status) const;
  void Send(const GetFrameHeader& header, std::vector<grpc::Slice> payload);
  void Drop();  // gives up all pins, and the wait for room
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
  GetPlan plan_;
  absl::Status error_;  // ends the call after the window's chunks
  size_t next_index_ = 0;
  std::deque<Chunk> window_;
  grpc::ByteBuffer frame_;
  bool writing_ = false, asked_ = false, cancelled_ = false, finished_ = false;
  bool looks_beyond_ = false;  // no chunk is looked at yet
  PinBudget::Ticket awaits_room_ = 0;
  std::shared_ptr<StallWatch::StallClock> stall_;  // runs while gRPC has a frame
  std::optional<absl::Status> ready_;              // of the front chunk's next frame
};

}  // namespace kvkeep
