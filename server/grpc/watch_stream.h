// WatchStream: one Watch call. Reads its events from the store, one message after the other: the
// next ones are read when the client has taken those before, so it holds one message at most.
//
// A client that reads too slowly costs no more: the store's log goes on without it, and the client
// is told of the gap (EventReader). The store ends it with the session.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/serial_loop.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class WatchStream final : public grpc::ServerWriteReactor<v1::WatchEvents>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  // `reader` or the error that the call ends with. `state`, and the reader's store, must outlive
  // the call.
  static WatchStream* Start(ServerState* state, Incarnation epoch,
                            absl::StatusOr<EventReader> reader);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct News {
    bool write_done = false, more = false;
    std::optional<absl::Status> end;
  };

  WatchStream(ServerState* state, Incarnation epoch);
  void Wake(absl::AnyInvocable<void(News&)> record);
  void Step();
  // Reads events until a message is on its way or there is nothing to tell.
  void SendNext();
  void FinishWith(const absl::Status& status);

  ServerState* const state_;
  const Incarnation epoch_;
  std::shared_ptr<WatchStream> self_;  // gRPC's reference, until OnDone
  SerialLoop loop_;
  Mutex mu_;
  News news_ ABSL_GUARDED_BY(mu_);

  // Below: touched by the step only (and before it is first woken).
  EventReader reader_;
  v1::WatchEvents message_;
  uint64_t sequence_ = 0;  // of the next event
  bool writing_ = false, waiting_ = false, finished_ = false;
  std::optional<absl::Status> end_;
};

}  // namespace kvkeep
