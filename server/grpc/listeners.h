// Listeners: the gRPC servers of a daemon. One serves clients on a Unix socket for each tenant, one
// serves Admin on a socket of its own, mode 0600, and one serves TCP when asked for: clients, Admin
// where certificates are named for it, TLS or not. All have health and reflection, which over TCP
// answer every client that completes the handshake.
//
// Connections are accepted here. The peer of a Unix socket is known: connections of the client
// server are in ServerState::peers before gRPC gets them. A peer that a socket's policy keeps out
// gets the reason as the answer to its first call, and never reaches gRPC (Refusals).
//
// Limits for all peers: a number of connections per listener; memory for messages that are on their
// way in (above it calls are cut off); memory for calls (Http2Gate). A silent peer, half a preface
// or a lost machine occupies a connection for peer_timeout; over Unix sockets, where no machine can
// be lost, for four times that.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "proto/http2_settings.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/kv_service.h"
#include "server/grpc/tls_credentials.h"
#include "server/observe/log.h"
#include "server/sockets/acceptor.h"
#include "server/sockets/http2_gate.h"
#include "server/sockets/refusals.h"
#include "server/sockets/unix_socket.h"
#include "tiers/base/units.h"

namespace kvkeep {

class Listeners {
 public:
  struct Options {
    struct Socket {
      UnixSocketOptions socket;
      Grants grants;
      uint64_t max_connections = 0;  // 0: as below
    };
    std::vector<Socket> sockets;  // by TenantId
    std::string admin_socket_path;
    std::string tcp_address;               // empty: off
    uint64_t max_connections = 4096;       // of one socket, and by TCP
    uint64_t max_address_connections = 0;  // by TCP, from one address; 0: as all
    uint64_t receive_memory_bytes = 512 * kMiB;
    Http2Limits http2;
    std::chrono::milliseconds peer_timeout{30'000};
    std::chrono::milliseconds tcp_connection_age{0};  // limit; 0: none
  };
  struct Deps {
    KvService* kv = nullptr;
    AdminService* admin = nullptr;
    // Services and TLS of the TCP address. No tcp_admin: no admin calls there. No tls: plaintext.
    KvService* tcp_kv = nullptr;
    AdminService* tcp_admin = nullptr;
    grpc::Service* tcp_peer = nullptr;  // for other nodes of the fleet; null: none
    std::shared_ptr<const TlsIdentity> tls;
    ServerState* state = nullptr;
    const Log* log = nullptr;
  };
  // Listens. All of `deps` must outlive this. Unavailable: an address cannot be had.
  static absl::StatusOr<std::unique_ptr<Listeners>> Open(const Options& options, const Deps& deps);
  ~Listeners();  // as Close(0)

  // Sets the health service's answer for kvkeep.v1.KvCache; "" is SERVING for as long as the
  // process lives.
  void SetServing(bool serving);
  // Sets the limits for new connections and for all memory. Ends no connection.
  void SetLimits(const Options& options);
  // Takes no new calls, lets those under way end until `grace` passed, then cancels them. Returns
  // when none is left.
  void Close(std::chrono::milliseconds grace);
  // Copies the gate's counters, and logs the connections that it held or cut off.
  void PollGate();
  // Runs tasks on the thread that accepts connections. Until Close.
  Executor* acceptor() { return acceptor_.get(); }

 private:
  Listeners(const Options& options, const Deps& deps)
      : options_(options), deps_(deps), limits_(options) {}
  absl::Status StartServers();
  absl::Status StartTcp();
  absl::Status StartAccepting();
  void Configure(grpc::ServerBuilder* builder, Http2Link link);
  // Returns true if too many descriptors that this peer's user passed, or too many of its
  // connections, wait to be closed.
  bool ClosingTooMany(const Acceptor::Connection& connection) const;
  // Must be called before a table or gRPC gets the connection.
  void Guard(const Acceptor::Connection& connection) const;
  void GiveToGrpc(Acceptor::Connection connection);
  // Return the name of the socket a connection came in by, and of its peer, for people.
  std::string NameOf(const Acceptor::Connection& connection) const;
  std::string PeerNameOf(const Acceptor::Connection& connection) const;
  bool by_tcp(const Acceptor::Connection& connection) const {
    return connection.socket > options_.sockets.size();
  }
  void Connected(Acceptor::Connection connection);
  using Table = ConnectionTable<ConnectedPeer>;
  // Returns the groups whose limits the connection counts against.
  std::vector<Table::Group> GroupsOf(const Acceptor::Connection& connection) const;
  void Refuse(Acceptor::Connection connection, const absl::Status& reason);

  const Options options_;  // as they were opened with; what may change is in limits_
  const Deps deps_;
  grpc::ResourceQuota receive_memory_{"kvkeep"};
  std::unique_ptr<Refusals> refusals_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tcp_in_;
  std::vector<UniqueFd> tcp_sockets_;  // until they are the acceptor's
  std::shared_ptr<grpc::ServerCredentials> tcp_credentials_;
  std::unique_ptr<grpc::Server> admin_, clients_, tcp_;
  // Used by the acceptor's thread only.
  Options limits_;
  std::chrono::steady_clock::time_point next_refusal_line_, next_failure_line_;
  uint64_t refusals_unsaid_ = 0, failures_unsaid_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace kvkeep
