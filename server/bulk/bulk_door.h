// BulkDoor: the listener of the bulk protocol: Unix sockets, one a tenant, and a TCP address with
// the TLS and the credentials of listen.tcp.
//
// One thread accepts connections; some threads serve them, each its own. A connection above a
// limit, or of a peer that the socket's policy keeps out, is closed and counted.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/access/tcp_access.h"
#include "server/bulk/connection.h"
#include "server/bulk/tls_stream.h"
#include "server/sockets/acceptor.h"
#include "server/sockets/event_loop.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class BulkDoor {
 public:
  struct Socket {
    UnixSocketOptions socket;
    TenantId tenant;
  };
  struct Limits {
    uint64_t max_connections = 4096;       // of one socket, and by TCP
    uint64_t max_address_connections = 0;  // by TCP, from one address; 0: as all
  };
  struct Options {
    std::vector<Socket> sockets;
    std::string tcp_address;  // empty: off
    Limits limits;
    std::chrono::milliseconds peer_timeout{30'000};   // of TCP: unacknowledged data ends it
    std::chrono::milliseconds tcp_connection_age{0};  // limit; 0: none
    size_t threads = 1;
  };
  struct Deps {  // all borrowed
    Store* store = nullptr;
    ServerState* state = nullptr;
    TcpAccess* tcp = nullptr;  // needed with tcp_address
  };
  // Listens and serves. Unavailable: an address cannot be had.
  static absl::StatusOr<std::unique_ptr<BulkDoor>> Start(const Options& options, const Deps& deps);
  ~BulkDoor();  // as Stop(0)

  void SetLimits(const Limits& limits);
  // Returns the loops, for who watches that they run.
  std::vector<Executor*> loops();
  // Takes no new connection and no new call, lets calls under way end until `grace` passed, then
  // cuts them off. Idempotent.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Server;  // a thread that serves connections
  // A connection's places in the groups whose limits it counts against, given back at its end.
  class Places;

  BulkDoor(const Options& options, const Deps& deps);
  void Connected(Acceptor::Connection connection);
  absl::Status Admit(Acceptor::Connection connection);
  absl::StatusOr<std::unique_ptr<Places>> TakePlaces(const Acceptor::Connection& connection);
  bool by_tcp(const Acceptor::Connection& connection) const {
    return connection.socket >= options_.sockets.size();
  }

  const Options options_;
  const Deps deps_;
  BulkMemory memory_;
  std::unique_ptr<TlsDoor> tls_;  // null: TCP without TLS
  std::vector<std::unique_ptr<Server>> servers_;
  uint64_t next_id_ = 1;  // of the acceptor's thread
  Mutex mu_;
  Limits limits_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, uint64_t> open_ ABSL_GUARDED_BY(mu_);  // connections, by group
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace kvkeep
