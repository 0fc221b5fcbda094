// SessionStream: one OpenSession call. The store's session lives as long as the call: whatever ends
// the stream (client closes, dies, its connection breaks, the daemon stops) closes the session at
// once.
//
// SessionStreams holds all open session streams, so that the daemon can tell clients that it is
// about to stop.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/access/credentials.h"
#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class SessionStream;

// Thread-safe. Streams that have ended drop out by themselves.
class SessionStreams {
 public:
  void Add(std::weak_ptr<SessionStream> stream);
  // Sends the draining event to every client.
  void NotifyDraining();
  // Ends every stream with UNAVAILABLE, and so every session.
  void EndAll();

 private:
  std::vector<std::shared_ptr<SessionStream>> Alive();

  Mutex mu_;
  std::vector<std::weak_ptr<SessionStream>> streams_ ABSL_GUARDED_BY(mu_);
};

class SessionStream final : public grpc::ServerWriteReactor<v1::SessionEvent>,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  // All must outlive the call.
  static SessionStream* Start(Store* store, ServerState* state, SessionStreams* streams,
                              absl::StatusOr<Caller> caller, const v1::OpenSessionRequest& request);

  void NotifyDraining();
  void EndBecauseStopping();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Events {
    bool write_done = false;
    bool draining = false;
    std::optional<absl::Status> end;
  };

  SessionStream(Store* store, ServerState* state);
  void Open(absl::StatusOr<Caller> caller, const v1::OpenSessionRequest& request);
  void Wake(absl::AnyInvocable<void(Events&)> record);
  void Step();
  void CloseSession();

  Store* const store_;
  ServerState* const state_;
  std::shared_ptr<SessionStream> self_;  // gRPC's reference, until OnDone
  SerialLoop loop_;
  Mutex mu_;
  Events events_ ABSL_GUARDED_BY(mu_);

  // Below: touched by the step only (and before it is first woken).
  std::optional<SessionToken> session_;
  v1::SessionEvent event_;
  bool writing_ = false, draining_due_ = false, finished_ = false;
  std::optional<absl::Status> end_;
};

}  // namespace kvkeep
