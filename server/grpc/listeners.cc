#include "server/grpc/listeners.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "server/sockets/guarded_sockets.h"
#include "server/sockets/tcp_socket.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr const char* kServiceName = "kvkeep.v1.KvCache";
// The largest lookup (65,536 keys of 32 bytes) and the largest Put frame with its headers both fit.
constexpr int kMaxReceiveBytes = 5 * kMiB + 64 * kKiB;
constexpr int kMaxCallsPerConnection = 1024;
constexpr int kAgeGraceMs = 60'000;  // for calls and sessions on a connection that is too old
constexpr int kHandshakeTimeoutMs = 10'000;  // of TLS; an unknown client costs little
constexpr std::chrono::seconds kLineEvery{10};
constexpr uint64_t kMaxAdminConnections = 64;
// The kernel tells when a peer on this machine dies. A peer that is stopped or silent has this many
// times peer_timeout, as each ping wakes the daemon.
constexpr int kLocalPatience = 4;

// Turns gRPC's log off, as our one line on a failed start says the same. GRPC_VERBOSITY turns it
// on.
void QuietGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

// Holds the gRPC library for the life of the process, and has it poll as Http2Gate needs. Otherwise
// the end of the last server shuts the library down, which may wait 10 s for a poller of its own
// (seen under load).
void KeepGrpcLibrary() {
  static const bool kept =
      (setenv("GRPC_POLL_STRATEGY", "epoll1", /*replace=*/1), grpc_init(), true);
  (void)kept;
}

absl::StatusOr<std::unique_ptr<grpc::Server>> Start(grpc::ServerBuilder* builder,
                                                    const std::string& address) {
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        address,
        ": cannot listen there; it is in use or not permitted: choose another in the config"));
  }
  return server;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listeners>> Listeners::Open(const Options& options,
                                                           const Deps& deps) {
  QuietGrpcLog();
  KeepGrpcLibrary();
  std::unique_ptr<Listeners> listeners(new Listeners(options, deps));
  KVKEEP_RETURN_IF_ERROR(listeners->StartServers());
  KVKEEP_RETURN_IF_ERROR(listeners->StartAccepting());
  return listeners;
}

void Listeners::Configure(grpc::ServerBuilder* builder, Http2Link link) {
  const auto timeout = static_cast<int>(options_.peer_timeout.count());
  const int patience = (link == Http2Link::kThisMachine ? kLocalPatience : 1) * timeout;
  builder->SetResourceQuota(receive_memory_);
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  SetHttp2(link, builder);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  // A client that is stopped or silent, or whose machine is gone, is noticed after the sum of both
  // times.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, patience - timeout / 3);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout / 3);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // By default gRPC stops after two pings without data in between, and would keep an idle session
  // for ever.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients ping as well, and not more often than this.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, timeout / 6);
}

absl::Status Listeners::StartServers() {
  receive_memory_.Resize(options_.receive_memory_bytes);
  Http2Gate::OfProcess().SetLimits(options_.http2);
  KVKEEP_ASSIGN_OR_RETURN(refusals_, Refusals::Start());
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  {
    grpc::ServerBuilder builder;
    Configure(&builder, Http2Link::kThisMachine);
    builder.RegisterService(deps_.admin);
    KVKEEP_ASSIGN_OR_RETURN(admin_, Start(&builder, "gRPC"));
  }
  {
    grpc::ServerBuilder builder;
    Configure(&builder, Http2Link::kThisMachine);
    builder.RegisterService(deps_.kv);
    KVKEEP_ASSIGN_OR_RETURN(clients_, Start(&builder, "gRPC"));
  }
  return options_.tcp_address.empty() ? absl::OkStatus() : StartTcp();
}

absl::Status Listeners::StartTcp() {
  tcp_credentials_ = deps_.tls != nullptr ? MakeTlsServerCredentials(deps_.tls)
                                          : grpc::InsecureServerCredentials();
  KVKEEP_ASSIGN_OR_RETURN(tcp_sockets_, ListenOnTcp(options_.tcp_address, options_.peer_timeout));
  grpc::ServerBuilder builder;
  Configure(&builder, Http2Link::kNetwork);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  if (options_.tcp_connection_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               static_cast<int>(options_.tcp_connection_age.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kAgeGraceMs);
  }
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  tcp_in_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, tcp_credentials_);
  builder.RegisterService(deps_.tcp_kv);
  if (deps_.tcp_admin != nullptr) builder.RegisterService(deps_.tcp_admin);
  if (deps_.tcp_peer != nullptr) builder.RegisterService(deps_.tcp_peer);
  KVKEEP_ASSIGN_OR_RETURN(tcp_, Start(&builder, options_.tcp_address));
  return absl::OkStatus();
}

absl::Status Listeners::StartAccepting() {
  // Admin first: once a client socket is open, the admin socket is open too.
  std::vector<UnixSocketOptions> sockets = {
      {.path = options_.admin_socket_path, .mode = 0600, .policy = {.uids = {0, geteuid()}}}};
  for (const Options::Socket& client : options_.sockets) sockets.push_back(client.socket);
  Acceptor::Handlers handlers;
  handlers.connected = [this](Acceptor::Connection connection) {
    Connected(std::move(connection));
  };
  handlers.failed = [this](const absl::Status& status) {
    deps_.state->counters.accept_pauses.fetch_add(1, std::memory_order_relaxed);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_failure_line_) {
      ++failures_unsaid_;
      return;
    }
    next_failure_line_ = now + kLineEvery;
    deps_.log->Warn("clients wait", {{"reason", std::string(status.message())},
                                     {"unsaid", absl::StrCat(std::exchange(failures_unsaid_, 0))}});
  };
  KVKEEP_ASSIGN_OR_RETURN(
      acceptor_, Acceptor::Open(std::move(sockets), std::move(handlers), std::move(tcp_sockets_)));
  acceptor_->WatchBy(&deps_.state->sockets);
  return absl::OkStatus();
}

void Listeners::Connected(Acceptor::Connection connection) {
  if (!connection.allowed.ok()) {
    const absl::Status reason = connection.allowed;
    return Refuse(std::move(connection), reason);
  }
  if (ClosingTooMany(connection)) {
    const absl::Status reason = absl::ResourceExhaustedError(absl::StrCat(
        "descriptors: those that uid ", connection.peer.uid, " passed are not closed yet"));
    return Refuse(std::move(connection), reason);
  }
  // Connections of the admin server and by TCP are in the table only to be counted.
  const bool is_admin = connection.socket == 0;
  ConnectedPeer peer{.credentials = connection.peer, .tenant = TenantId(0), .grants = {}};
  if (!is_admin && !by_tcp(connection)) {
    peer.tenant = TenantId(static_cast<uint32_t>(connection.socket - 1));
    peer.grants = options_.sockets[connection.socket - 1].grants;
  }
  Guard(connection);
  const std::vector<Table::Group> groups = GroupsOf(connection);
  Table& peers = deps_.state->peers;
  if (!peers.Add(connection.fd.get(), groups, peer)) {
    const Table::Group& full = peers.Full(groups.back()) ? groups.back() : groups.front();
    const absl::Status reason = absl::ResourceExhaustedError(
        absl::StrCat("connections: ", full.limit, " of ", full.name, " are open; close some"));
    return Refuse(std::move(connection), reason);
  }
  deps_.state->counters.connections.fetch_add(1, std::memory_order_relaxed);
  GiveToGrpc(std::move(connection));
}

std::vector<Listeners::Table::Group> Listeners::GroupsOf(
    const Acceptor::Connection& connection) const {
  uint64_t limit = limits_.max_connections;
  const bool tcp = by_tcp(connection);
  if (connection.socket == 0) {
    limit = kMaxAdminConnections;
  } else if (!tcp && limits_.sockets[connection.socket - 1].max_connections > 0) {
    limit = limits_.sockets[connection.socket - 1].max_connections;
  }
  std::vector<Table::Group> groups = {{NameOf(connection), limit}};
  if (tcp && limits_.max_address_connections > 0) {
    groups.push_back(
        {absl::StrCat("address ", connection.address), limits_.max_address_connections});
  }
  return groups;
}

bool Listeners::ClosingTooMany(const Acceptor::Connection& connection) const {
  if (by_tcp(connection)) return false;
  const DescriptorCloser::Owner passed = PassedByGuarded(connection.socket, connection.peer.uid);
  const DescriptorCloser& closer = DescriptorCloser::OfProcess();
  return closer.Full(passed) || closer.Full(ConnectionsOf(passed));
}

void Listeners::Guard(const Acceptor::Connection& connection) const {
  const bool passes = !by_tcp(connection) && !TakeDescriptors(connection.fd.get(), false);
  GuardSocket(connection.fd.get(), passes
                                       ? PassedByGuarded(connection.socket, connection.peer.uid)
                                       : kNothingPassed);
}

void Listeners::GiveToGrpc(Acceptor::Connection connection) {
  const bool tls = by_tcp(connection) && deps_.tls != nullptr;
  const std::string owner =
      by_tcp(connection) ? absl::StrCat("address ", connection.address)
                         : absl::StrCat("socket ", connection.socket, " uid ", connection.peer.uid);
  Http2Gate::OfProcess().Add(
      connection.fd.get(), tls ? Http2Connection::Wire::kTls : Http2Connection::Wire::kPlain,
      {.socket = NameOf(connection), .name = PeerNameOf(connection), .owner = owner});
  if (!by_tcp(connection)) {
    grpc::Server* const server = connection.socket == 0 ? admin_.get() : clients_.get();
    grpc::AddInsecureChannelFromFd(server, connection.fd.Release());
    return;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.fd.Release();
  tcp_in_->HandleNewConnection(&parameters);
}

std::string Listeners::NameOf(const Acceptor::Connection& connection) const {
  if (connection.socket == 0) return options_.admin_socket_path;
  return by_tcp(connection) ? options_.tcp_address
                            : options_.sockets[connection.socket - 1].socket.path;
}

std::string Listeners::PeerNameOf(const Acceptor::Connection& connection) const {
  return by_tcp(connection) ? connection.address : connection.peer.ToString();
}

void Listeners::Refuse(Acceptor::Connection connection, const absl::Status& reason) {
  deps_.state->counters.refused_connections.fetch_add(1, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_refusal_line_) {
    deps_.log->Warn("connection refused",
                    {{"socket", NameOf(connection)},
                     {"peer", PeerNameOf(connection)},
                     {"reason", std::string(reason.message())},
                     {"unsaid", absl::StrCat(refusals_unsaid_)}});
    next_refusal_line_ = now + kLineEvery;
    refusals_unsaid_ = 0;
  } else {
    ++refusals_unsaid_;
  }
  // A limit is temporary: the connection is closed, so that the client tries again. A policy is
  // not.
  if (!absl::IsPermissionDenied(reason) || ClosingTooMany(connection)) return;
  refusals_->Add(std::move(connection.fd), reason,
                 PassedByGuarded(connection.socket, connection.peer.uid));
}

void Listeners::PollGate() {
  Http2Gate& gate = Http2Gate::OfProcess();
  ServerCounters& counters = deps_.state->counters;
  counters.call_memory_bytes = gate.call_bytes();
  counters.held_for_resets = gate.holds(Http2Hold::kResets);
  counters.held_for_memory = gate.holds(Http2Hold::kMemory);
  counters.held_for_frames = gate.holds(Http2Hold::kFrames);
  counters.cut_for_memory = gate.cuts(Http2Fault::kMemory);
  counters.cut_before_ack = gate.cuts(Http2Fault::kBeforeAck);
  counters.cut_for_header_block = gate.cuts(Http2Fault::kHeaderBlock);
  counters.cut_for_settings = gate.cuts(Http2Fault::kSettings);
  counters.cut_for_frame = gate.cuts(Http2Fault::kFrame);
  for (const Http2Gate::Notice& notice : gate.TakeNotices()) {
    deps_.log->Warn(notice.is_cut ? "connection cut" : "reads held",
                    {{"socket", notice.peer.socket},
                     {"peer", notice.peer.name},
                     {"reason", std::string(notice.reason)},
                     {"frames", absl::StrCat(notice.frames)},
                     {"unsaid", absl::StrCat(notice.unsaid)}});
  }
}

Listeners::~Listeners() { Close(std::chrono::milliseconds(0)); }

void Listeners::SetServing(bool serving) {
  for (const std::unique_ptr<grpc::Server>* server : {&clients_, &admin_, &tcp_}) {
    if (*server == nullptr) continue;
    grpc::HealthCheckServiceInterface* health = (*server)->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(kServiceName, serving);
  }
}

void Listeners::SetLimits(const Options& options) {
  receive_memory_.Resize(options.receive_memory_bytes);
  Http2Gate::OfProcess().SetLimits(options.http2);
  acceptor_->Post([this, options] { limits_ = options; });
}

void Listeners::Close(std::chrono::milliseconds grace) {
  acceptor_.reset();  // first: nothing may be given to a server that ends
  const auto deadline = std::chrono::system_clock::now() + grace;
  refusals_.reset();
  for (std::unique_ptr<grpc::Server>* server : {&clients_, &tcp_, &admin_}) {
    if (*server == nullptr) continue;
    (*server)->Shutdown(deadline);
    (*server)->Wait();
    server->reset();
  }
}

}  // namespace kvkeep
