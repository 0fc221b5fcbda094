// FetchStream: one Fetch call, which sends the image of one chunk to another node. As in GetStream,
// frames of up to two pieces leave as soon as their pieces are in place, and no byte is copied
// here: a frame's payload is slices over the arena, each with a reference to the pin.
//
// The header page is made for the fleet: tier G2, the fleet's place and MAC. A node that does not
// take a frame within limits.stall_timeout ends the call.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>

#include "server/fleet/peer_wire.h"
#include "server/fleet/serve_budget.h"
#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

// The place and the MAC key that images between nodes of one fleet have.
struct FleetSeal {
  Uuid place;
  MacKey mac_key{};
};

// Counters of what this node served to others.
struct ServedToPeers {
  std::atomic<uint64_t> finds{0}, found_chunks{0};
  std::atomic<uint64_t> summaries{0};
  std::atomic<uint64_t> fetches{0}, fetched_bytes{0};
  std::atomic<uint64_t> from_g3{0};  // of images that were sent, those that came from NVMe
  std::atomic<uint64_t> busy{0};     // refused by the budget, or G2 had no space
  std::atomic<uint64_t> absent{0};   // not there any more
  std::atomic<uint64_t> refused{0};  // callers that are no peers, tenants that are not shared
  // Chunks that leaving nodes offered: all of them, those that came, and those that did not.
  std::atomic<uint64_t> offered_chunks{0}, taken_chunks{0}, untaken_chunks{0};
};

class FetchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<FetchStream> {
 public:
  // All are borrowed, and outlive the call.
  struct Parts {
    Store* store;
    ServerState* state;
    ServeBudget* budget;
    ServedToPeers* served;
    const FleetSeal* seal;
  };
  // `wanted`, or the error that the call ends with.
  static FetchStream* Start(const Parts& parts, grpc::CallbackServerContext* context,
                            absl::StatusOr<WantedImage> wanted);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Pin;
  struct Events {
    bool write_done = false, write_ok = false;
    bool cancelled = false, stalled = false;
    std::optional<absl::Status> ready;  // the store's answer about the next pieces
  };

  FetchStream(const Parts& parts, grpc::CallbackServerContext* context);
  absl::Status Begin(const WantedImage& wanted);
  void Wake(absl::AnyInvocable<void(Events&)> record);
  void Step();
  void Apply(Events events);
  void AskReady();
  // Returns an error if the header page in memory has turned out damaged.
  absl::Status SendPieces();
  absl::StatusOr<std::string> MakeHeader() const;
  void FinishWith(const absl::Status& status);

  const Parts parts_;
  std::shared_ptr<FetchStream> self_;  // gRPC's reference, until OnDone
  SerialLoop loop_;
  Mutex mu_;
  Events events_ ABSL_GUARDED_BY(mu_);

  // Below: touched by the step only.
  grpc::CallbackServerContext* const context_;  // valid until Finish was called
  WantedImage wanted_;
  absl::Status error_;  // ends the call
  std::shared_ptr<Pin> pin_;
  size_t next_piece_ = 0;
  grpc::ByteBuffer frame_;
  bool writing_ = false, asked_ = false, cancelled_ = false, finished_ = false;
  std::shared_ptr<StallWatch::StallClock> stall_;  // runs while gRPC has a frame
  std::optional<absl::Status> ready_;
};

}  // namespace kvkeep
