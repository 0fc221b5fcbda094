// Listeners: the gRPC servers of a daemon. One serves clients on a Unix socket for each tenant, one
// serves Admin on a socket of its own, mode 0600, and one serves TCP when asked for: clients, Admin
// where certificates are named for it, TLS or not. All have health and reflection, which over TCP
// answer to whoever gets through the handshake.
//
// Connections are accepted here. By Unix sockets it is known who is behind them: the client
// server's are in ServerState::peers before gRPC gets them. Those whom a socket's policy keeps out
// get the reason as the answer to their first call, and never reach gRPC (Refusals).
//
// Peers can cost no more than this, whoever they are: a number of connections of a listener; memory
// for messages that are on their way in (above it calls are cut off); memory for calls (Http2Gate).
// Silence, half a preface or a lost machine cost a connection for peer_timeout; over Unix sockets,
// where no machine is lost, for four times that.
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
    std::chrono::milliseconds tcp_connection_age{0};  // the most; 0: any
  };
  struct Deps {
    KvService* kv = nullptr;
    AdminService* admin = nullptr;
    // Of the TCP address. No tcp_admin: no admin calls there. No tls: plaintext.
    KvService* tcp_kv = nullptr;
    AdminService* tcp_admin = nullptr;
    std::shared_ptr<const TlsIdentity> tls;
    ServerState* state = nullptr;
    const Log* log = nullptr;
  };
  // Listens. All of `deps` must outlive this. Unavailable: an address cannot be had.
  static absl::StatusOr<std::unique_ptr<Listeners>> Open(const Options& options, const Deps& deps);
  ~Listeners();  // as Close(0)

  // What the health service says of kvkeep.v1.KvCache; "" is SERVING for as long as the process
  // lives.
  void SetServing(bool serving);
  // Limits connections from now on, and all memory. No connection is ended.
  void SetLimits(const Options& options);
  // Takes no new calls, lets those under way end until `grace` passed, then cancels them. Returns
  // when none is left.
  void Close(std::chrono::milliseconds grace);
  // Takes over what the gate counted, and writes lines of the log about whom it held or cut off.
  void PollGate();
  // Runs tasks on the thread that accepts connections. Until Close.
  Executor* acceptor() { return acceptor_.get(); }

 private:
  Listeners(const Options& options, const Deps& deps)
      : options_(options), deps_(deps), limits_(options) {}
  absl::Status StartServers();
  absl::Status StartTcp();
  absl::Status StartAccepting();
  enum class Peers { kOfThisMachine, kAnywhere };
  void Configure(grpc::ServerBuilder* builder, Peers peers);
  // Of this peer's user, what it passed and its connections: no more should be taken.
  bool ClosingTooMany(const Acceptor::Connection& connection) const;
  // Before a table or gRPC gets it.
  void Guard(const Acceptor::Connection& connection) const;
  void GiveToGrpc(Acceptor::Connection connection);
  // The socket a connection came in by, and who is at its other end, for people.
  std::string NameOf(const Acceptor::Connection& connection) const;
  std::string PeerNameOf(const Acceptor::Connection& connection) const;
  bool by_tcp(const Acceptor::Connection& connection) const {
    return connection.socket > options_.sockets.size();
  }
  void Connected(Acceptor::Connection connection);
  using Table = ConnectionTable<ConnectedPeer>;
  // What a connection counts as.
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
  // Of the acceptor's thread.
  Options limits_;
  std::chrono::steady_clock::time_point next_refusal_line_, next_failure_line_;
  uint64_t refusals_unsaid_ = 0, failures_unsaid_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace kvkeep
