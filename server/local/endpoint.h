// LocalEndpoint: the listener of the local path: a SEQPACKET socket for every tenant, one thread
// that serves them all.
//
// The peer's identity comes from the kernel. A peer that is not allowed, or exceeds the limit, gets
// the reason as the answer to its Hello, as long as few such peers wait. They take no place of an
// admitted client, and one user cannot take all of their places. The process behind a connection is
// watched, so that a forked child that inherited the socket does not keep a dead client's leases.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/local/connection.h"
#include "server/sockets/listening_socket.h"
#include "server/sockets/socket_watch.h"
#include "server/sockets/unix_socket.h"

namespace kvkeep {

class LocalEndpoint {
 public:
  struct ListenerOptions {
    UnixSocketOptions socket;
    TenantId tenant;
    Grants grants;
    SegmentRange segments;
    std::vector<SegmentRange> shared = {};  // of tenants that this one may read, each once
    // Limits of this listener, and so of its tenant; 0: as LocalLimits allows to all.
    uint32_t max_connections = 0;
    uint64_t max_staging_bytes = 0;
    double gpu_part = 1;  // of what all may have of the GPU path
    GpuRights gpu_rights = {};
    std::shared_ptr<MessageAccount> messages;  // null: one of its own, as large as all
  };
  struct Options {
    std::vector<ListenerOptions> listeners;
    LocalLimits limits;
    std::string version;
  };
  // All borrowed; must outlive the endpoint and the puts it started (LocalCounters::puts_copying).
  struct Deps {
    Store* store = nullptr;
    Arena* arena = nullptr;
    Executor* copy_executor = nullptr;
    LocalCounters* counters = nullptr;
    GpuPath* gpu = nullptr;         // null: there is none
    RequestTimes* times = nullptr;  // null: not noted
    Clock* clock = nullptr;
    // Watches the sockets until it forgets them, which must be before the endpoint stops. Null:
    // nothing watches them.
    SocketWatch* sockets = nullptr;
    std::function<uint32_t()> serving_state;
  };
  // Listens and serves. InvalidArgument: a limit or a socket's path or group; Unavailable: a socket
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<LocalEndpoint>> Start(const Options& options,
                                                              const Deps& deps);
  ~LocalEndpoint();

  // Tells every session that the daemon drains. Thread-safe.
  void NotifyDraining();
  // Sets the limit of connections by a tenant's listener from now on.
  void SetMaxConnections(TenantId tenant, uint32_t connections);
  // Runs tasks on the endpoint's thread; destroys them once that has stopped.
  Executor* loop() { return loop_.get(); }
  // Closes every connection and joins the thread. Copies under way end later. Idempotent.
  void Stop();

 private:
  struct Listener {
    ListenerOptions options;
    ListeningSocket socket;
    std::shared_ptr<StagingAccount> staging;
    std::shared_ptr<GpuAccount> gpu;
    std::shared_ptr<MessageAccount> messages;
    size_t open = 0;  // connections by it
    // Further connections that only wait for the reason of their refusal: all, and by user.
    size_t refused = 0;
    absl::flat_hash_map<uid_t, size_t> refused_of = {};
  };
  struct Connected {
    size_t listener = 0;
    std::optional<uid_t> refused = std::nullopt;
    std::unique_ptr<LocalConnection> connection;
  };

  LocalEndpoint(std::shared_ptr<EventLoop> loop, const Options& options, const Deps& deps);
  absl::Status Listen(const std::vector<ListenerOptions>& listeners);
  void WatchBy(SocketWatch* watch);
  void Run();
  void OnEvent(uint64_t key, uint32_t events);
  void Accept(size_t listener);
  void Admit(size_t number, ExpendableFd socket);
  // Returns why this peer is not let in; OK if it is.
  absl::Status Judge(const Listener& listener, const absl::StatusOr<PeerCredentials>& peer) const;
  // Returns whether one more peer of `user` may wait for the reason of its refusal.
  static bool HasPlaceForRefused(const Listener& listener, uid_t user);
  void GiveBackPlace(const Connected& closed);
  void PauseAccepting();
  void Tick(MonotonicTime now);
  void SettleTouched();

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<const LocalContext> context_;
  Clock* const clock_;
  std::vector<Listener> listeners_;
  std::vector<std::byte> buffer_;  // one packet
  bool stopping_ = false;
  bool paused_ = false;
  MonotonicTime next_tick_{0};
  uint64_t next_id_ = 0;
  LocalConnection::Round round_;
  absl::flat_hash_map<uint64_t, Connected> connections_;
  std::thread thread_;
};

}  // namespace kvkeep
