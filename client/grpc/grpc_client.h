// GrpcClient: state that all gRPC calls of one client share: the session with the daemon, the
// namespaces, and the register of calls in flight. Internal to the library.
//
// One thread per client (session_keeper.h) opens a session and waits for its end. Every session has
// channels of its own: calls of an old session can never reach a new one, and dropping the channels
// closes the connections for certain.
//
// Thread-safe. The client, its calls, leases and namespaces hold it; it works until Shutdown.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/grpc/grpc_session.h"
#include "client/transport/session_keeper.h"
#include "client/transport/transport.h"
#include "client/values/options.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class GrpcClient;

// A call in flight. Owned by the client's register from Begin to End.
class InFlightCall {
 public:
  virtual ~InFlightCall() = default;
  // Thread-safe, at any time. The call's callback still runs, soon.
  void Cancel();
  const std::shared_ptr<SessionId>& session_id() const { return session_id_; }
  // Returns the time by which gRPC should have ended the call.
  std::chrono::steady_clock::time_point overdue_at() const { return overdue_at_; }

 protected:
  InFlightCall(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session, Deadline deadline);
  // Valid until Disconnect.
  grpc::ClientContext* context();
  // Lets go of the connection and everything else that could keep gRPC's memory alive.
  void Disconnect();

  const std::shared_ptr<GrpcClient> grpc_client_;
  const std::shared_ptr<SessionId> session_id_;
  SessionPtr session_;  // until Disconnect; only for the call itself

 private:
  std::chrono::steady_clock::time_point overdue_at_;  // constant
  Mutex mu_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mu_);
};

// Returns a call's status as callers of the library know it. UNAVAILABLE also if the daemon had
// ended the call's session, as when it stops: the token is this library's, no mistake of theirs.
absl::Status FromGrpc(const grpc::Status& status);
// Returns whether a call's status says that the daemon does not know the call's session.
bool IsOfEndedSession(const absl::Status& status);

// Keeps gRPC from ever shutting down; call it before making a channel. gRPC 1.51 shuts down when
// its last user in the process goes, and may then wait 10 s for a poller of its own. Not OK: gRPC
// must not be used (CheckGrpcClash).
absl::Status KeepGrpcLoaded();

class SessionStream;

class GrpcClient : public std::enable_shared_from_this<GrpcClient>,
                   private SessionKeeper<const Session>::Opener {
 public:
  explicit GrpcClient(ClientOptions options);
  ~GrpcClient() override;

  void Start();
  void Shutdown();  // once; no callback runs after it
  const ClientOptions& options() const { return options_; }

  using Keeper = SessionKeeper<const Session>;
  using Ready = Keeper::Ready;
  Keeper& keeper() { return keeper_; }
  // Returns the session with this id if it is still the current one; else null.
  SessionPtr FindSession(const std::shared_ptr<SessionId>& id);
  absl::StatusOr<DeclaredNamespaces::Ptr> OpenNamespace(const NamespaceSpec& spec,
                                                        Deadline deadline);

  // Registers a call before it starts. Not OK: the client is being destroyed.
  absl::Status Begin(std::shared_ptr<InFlightCall> call);
  // Takes the call out and runs its callback; the call may be gone afterwards. REQUIRES: it has
  // disconnected.
  void End(InFlightCall* call, absl::AnyInvocable<void() &&> callback);
  // Like Like End, but on a thread where gRPC holds no locks.
  void EndLater(InFlightCall* call, absl::AnyInvocable<void() &&> callback);

  // Ends the session, if it is still the current one, and all its calls. A new one follows.
  void TearDown(const SessionId& id);
  // Notes that gRPC still refers to the memory of a put that has ended. If that lasts, the session
  // is torn down.
  void SlicesAreLate(SessionId& id);

  // Releases a lease; `done` may be empty. A lease whose session is over needs no release, and is
  // OK.
  void ReleaseLease(const std::shared_ptr<SessionId>& id, uint64_t lease_id, uint32_t keep_keys,
                    DoneCallback done = nullptr);

  ClientStats GetStats() const;

  struct Counters {
    std::atomic<uint64_t> corrupt_chunks{0}, bytes_received{0}, bytes_sent{0}, late_slices{0},
        sessions_torn_down{0}, bulk_fallbacks{0}, leases_reclaimed{0};
  };
  Counters counters;

 private:
  absl::Status RunSession(uint64_t epoch) override;
  absl::StatusOr<NamespaceDigest> AskToOpen(const SessionPtr& session, const NamespaceSpec& spec,
                                            Deadline deadline) override;
  absl::StatusOr<std::shared_ptr<Session>> Connect(uint64_t epoch);
  // Waits until the daemon has sent the session's token.
  absl::Status AwaitOpened(const std::shared_ptr<Session>& session, SessionStream* stream);
  absl::Status Publish(const SessionPtr& session, const SessionStream& stream);
  void WaitForEnd(const SessionPtr& session, SessionStream* stream);
  bool HasOverdueCall(const SessionId* id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelCallsOf(const SessionId* id);  // null: all

  const ClientOptions options_;
  Keeper keeper_;                      // its thread runs from Start to Shutdown
  std::unique_ptr<ThreadPool> later_;  // for work that gRPC's threads must not run; likewise

  mutable Mutex mu_;
  CondVar changed_;   // signals the session's thread
  CondVar all_done_;  // running_ is 0
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t torn_down_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<InFlightCall*, std::shared_ptr<InFlightCall>> calls_ ABSL_GUARDED_BY(mu_);
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;  // calls whose callback has not returned
  std::chrono::steady_clock::time_point late_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
