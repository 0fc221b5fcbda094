#include "server/bulk/bulk_door.h"

#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/sockets/tcp_socket.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTickEvery{250};
constexpr size_t kScratchBytes = 256 * kKiB;
// How long a thread may poll for events before it sleeps, while they follow each other closely.
constexpr std::chrono::microseconds kBulkBusyPoll{50};

// Returns the owner of the descriptors that a user passes by a socket of this door.
DescriptorCloser::Owner PassedToBulk(size_t socket, uid_t user) {
  return (uint64_t{7} << 48) + (uint64_t{socket} << 32) + user;
}

// Has the kernel end a TCP connection whose other machine says nothing for `peer_timeout`.
void NoticeLostPeer(int socket, milliseconds peer_timeout) {
  constexpr int kProbes = 3;
  const auto seconds = static_cast<int>(peer_timeout.count() / 1000);
  const int pause = std::max(1, seconds / (2 * kProbes));
  const auto set = [socket](int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// A client by a Unix socket is of the socket's tenant: the acceptor let it in.
class SocketCaller final : public BulkCaller {
 public:
  SocketCaller(TenantId tenant, std::string name) : tenant_(tenant), name_(std::move(name)) {}
  absl::StatusOr<TenantId> Admit(const ShownCertificate&, const std::string&) override {
    return tenant_;
  }
  std::string name() const override { return name_; }

 private:
  const TenantId tenant_;
  const std::string name_;
};

class TcpCaller final : public BulkCaller {
 public:
  TcpCaller(TcpCallers* callers, bool tls, std::string name)
      : callers_(callers), tls_(tls), name_(std::move(name)) {}
  absl::StatusOr<TenantId> Admit(const ShownCertificate& shown,
                                 const std::string& authorization) override {
    return callers_->Admit({.name = name_,
                            .tls = tls_,
                            .certificate = shown.certificate,
                            .between = shown.between,
                            .dns_names = shown.dns_names,
                            .uri_names = shown.uri_names,
                            .authorization = authorization});
  }
  std::string name() const override { return name_; }

 private:
  TcpCallers* const callers_;
  const bool tls_;
  const std::string name_;
};

}  // namespace

class BulkDoor::Places {
 public:
  Places(BulkDoor* door, std::vector<std::string> groups)
      : door_(door), groups_(std::move(groups)) {}
  ~Places() {
    MutexLock lock(&door_->mu_);
    for (const std::string& group : groups_) {
      const auto found = door_->open_.find(group);
      if (--found->second == 0) door_->open_.erase(found);
    }
    door_->deps_.state->counters.open_bulk_connections.fetch_sub(1, std::memory_order_relaxed);
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

 private:
  BulkDoor* const door_;
  const std::vector<std::string> groups_;
};

class BulkDoor::Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Clock* clock) {
    KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop, EventLoop::Create(kBulkBusyPoll));
    std::unique_ptr<Server> server(new Server(std::move(loop), clock));
    server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
    return server;
  }
  ~Server() { Stop(milliseconds(0)); }

  EventLoop* loop() { return loop_.get(); }

  // On any thread.
  void Add(BulkConnection::Deps deps, uint64_t id, std::unique_ptr<ByteStream> stream,
           std::unique_ptr<BulkCaller> caller, std::unique_ptr<Places> places) {
    deps.loop = loop_;
    deps.scratch = scratch_;
    deps.on_closed = [this](uint64_t closed) { closed_.push_back(closed); };
    auto connection =
        std::make_shared<BulkConnection>(std::move(deps), id, std::move(stream), std::move(caller));
    auto held = std::make_shared<Held>(Held{std::move(places), std::move(connection)});
    loop_->Post([this, id, held] {
      if (ending_ || !held->connection->Start().ok()) return;
      connections_.emplace(id, std::move(*held));
    });
  }

  // Takes no new call.
  void EndSoon() {
    loop_->Post([this] {
      ending_ = true;
      for (const auto& [id, held] : connections_) held.connection->EndSoon();
    });
  }
  void Stop(milliseconds grace) {
    if (!thread_.joinable()) return;
    EndSoon();
    loop_->Post([this, grace] { end_at_ = std::chrono::steady_clock::now() + grace; });
    thread_.join();
    loop_->Close();
  }

 private:
  struct Held {
    std::unique_ptr<Places> places;
    std::shared_ptr<BulkConnection> connection;
  };
  Server(std::shared_ptr<EventLoop> loop, const Clock* clock)
      : loop_(std::move(loop)), clock_(clock), scratch_(kScratchBytes) {}

  void Run() {
    pthread_setname_np(pthread_self(), "kvkeep-bulk");
    const EventLoop::OnEvent on_event = [this](uint64_t id, uint32_t events) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) found->second.connection->OnEvent(events);
    };
    MonotonicTime next_tick = clock_->Now() + kTickEvery;
    while (!Ended()) {
      const bool idle = connections_.empty() && !end_at_.has_value();
      loop_->RunOnce(idle ? milliseconds(-1) : kTickEvery, on_event);
      const MonotonicTime now = clock_->Now();
      if (now >= next_tick) {
        next_tick = now + kTickEvery;
        for (const auto& [id, held] : connections_) held.connection->OnTick(now);
      }
      for (const uint64_t id : std::exchange(closed_, {})) connections_.erase(id);
    }
    for (const auto& [id, held] : connections_) held.connection->Close();
    connections_.clear();
  }
  bool Ended() const {
    if (!end_at_.has_value()) return false;
    return connections_.empty() || std::chrono::steady_clock::now() >= *end_at_;
  }

  const std::shared_ptr<EventLoop> loop_;
  const Clock* const clock_;
  std::vector<std::byte> scratch_;
  // The rest is the thread's.
  absl::flat_hash_map<uint64_t, Held> connections_;
  std::vector<uint64_t> closed_;
  bool ending_ = false;
  std::optional<std::chrono::steady_clock::time_point> end_at_;
  std::thread thread_;
};

BulkDoor::BulkDoor(const Options& options, const Deps& deps)
    : options_(options), deps_(deps), limits_(options.limits) {}

absl::StatusOr<std::unique_ptr<BulkDoor>> BulkDoor::Start(const Options& options,
                                                          const Deps& deps) {
  KVKEEP_CHECK(options.threads > 0 && (options.tcp_address.empty() || deps.tcp != nullptr));
  std::unique_ptr<BulkDoor> door(new BulkDoor(options, deps));
  std::vector<UniqueFd> tcp;
  if (!options.tcp_address.empty()) {
    if (deps.tcp->tls() != nullptr) door->tls_ = std::make_unique<TlsDoor>(deps.tcp->tls());
    KVKEEP_ASSIGN_OR_RETURN(tcp, ListenOnTcp(options.tcp_address, options.peer_timeout));
  }
  for (size_t i = 0; i < options.threads; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Start(deps.state->clock));
    door->servers_.push_back(std::move(server));
  }
  std::vector<UnixSocketOptions> sockets;
  for (const Socket& socket : options.sockets) sockets.push_back(socket.socket);
  Acceptor::Handlers handlers;
  handlers.connected = [raw = door.get()](Acceptor::Connection connection) {
    raw->Connected(std::move(connection));
  };
  handlers.failed = [state = deps.state](const absl::Status&) {
    state->counters.accept_pauses.fetch_add(1, std::memory_order_relaxed);
  };
  KVKEEP_ASSIGN_OR_RETURN(door->acceptor_,
                          Acceptor::Open(std::move(sockets), std::move(handlers), std::move(tcp)));
  door->acceptor_->WatchBy(&deps.state->sockets);
  return door;
}

BulkDoor::~BulkDoor() { Stop(milliseconds(0)); }

std::vector<Executor*> BulkDoor::loops() {
  std::vector<Executor*> all;
  for (const std::unique_ptr<Server>& server : servers_) all.push_back(server->loop());
  return all;
}

void BulkDoor::SetLimits(const Limits& limits) {
  MutexLock lock(&mu_);
  limits_ = limits;
}

void BulkDoor::Stop(milliseconds grace) {
  acceptor_.reset();
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (const std::unique_ptr<Server>& server : servers_) server->EndSoon();
  for (const std::unique_ptr<Server>& server : servers_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    server->Stop(std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(left)));
  }
}

void BulkDoor::Connected(Acceptor::Connection connection) {
  ServerCounters& counters = deps_.state->counters;
  const absl::Status admitted = Admit(std::move(connection));
  (admitted.ok() ? counters.bulk_connections : counters.refused_bulk_connections)
      .fetch_add(1, std::memory_order_relaxed);
}

absl::StatusOr<std::unique_ptr<BulkDoor::Places>> BulkDoor::TakePlaces(
    const Acceptor::Connection& connection) {
  const bool tcp = by_tcp(connection);
  std::vector<std::string> groups = {tcp ? std::string("TCP")
                                         : options_.sockets[connection.socket].socket.path};
  MutexLock lock(&mu_);
  std::vector<uint64_t> limits = {limits_.max_connections};
  if (tcp && limits_.max_address_connections > 0) {
    groups.push_back(absl::StrCat("address ", connection.address));
    limits.push_back(limits_.max_address_connections);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto found = open_.find(groups[i]);
    if (found == open_.end() || found->second < limits[i]) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("connections: ", limits[i], " of ", groups[i], " are open"));
  }
  for (const std::string& group : groups) ++open_[group];
  deps_.state->counters.open_bulk_connections.fetch_add(1, std::memory_order_relaxed);
  return std::make_unique<Places>(this, std::move(groups));
}

absl::Status BulkDoor::Admit(Acceptor::Connection connection) {
  KVKEEP_RETURN_IF_ERROR(connection.allowed);
  const bool tcp = by_tcp(connection);
  const DescriptorCloser::Owner passed = PassedToBulk(connection.socket, connection.peer.uid);
  if (!tcp) {
    (void)TakeDescriptors(connection.fd.get(), false);
    if (DescriptorCloser::OfProcess().Full(passed)) {
      return absl::ResourceExhaustedError("descriptors that this user passed are not closed yet");
    }
  }
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Places> places, TakePlaces(connection));
  std::unique_ptr<BulkCaller> caller;
  std::unique_ptr<ByteStream> stream;
  if (tcp) {
    NoticeLostPeer(connection.fd.get(), options_.peer_timeout);
    caller = std::make_unique<TcpCaller>(deps_.tcp->callers(), tls_ != nullptr,
                                         absl::StrCat("bulk:", connection.address));
    if (tls_ != nullptr) {
      KVKEEP_ASSIGN_OR_RETURN(stream, tls_->Accept(std::move(connection.fd)));
    }
  } else {
    caller = std::make_unique<SocketCaller>(options_.sockets[connection.socket].tenant,
                                            absl::StrCat("bulk:", connection.peer.ToString()));
  }
  if (stream == nullptr) stream = MakeSocketStream(std::move(connection.fd), passed);
  const uint64_t id = next_id_++;
  const milliseconds age = tcp ? options_.tcp_connection_age : milliseconds(0);
  servers_[id % servers_.size()]->Add(
      {.store = deps_.store, .state = deps_.state, .memory = &memory_, .max_age = age}, id,
      std::move(stream), std::move(caller), std::move(places));
  return absl::OkStatus();
}

}  // namespace kvkeep
