#include "server/local/endpoint.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/sockets/descriptor_reserve.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr int kAcceptsPerEvent = 64;
// Connections that only wait for the reason of their refusal: of a listener, and of one user there.
constexpr size_t kMostRefused = 64;
constexpr size_t kMostRefusedOfUser = 16;
constexpr milliseconds kLongestTick{250};

// Return the accounts of the closer: for a listener's sockets, and for descriptors that a user
// passed.
DescriptorCloser::Owner SocketsOf(size_t listener) { return (uint64_t{2} << 48) + listener; }
DescriptorCloser::Owner PassedBy(size_t listener, uid_t user) {
  return (uint64_t{1} << 63) + (static_cast<uint64_t>(listener) << 32) + user;
}

std::shared_ptr<const LocalContext> MakeContext(std::shared_ptr<EventLoop> loop,
                                                const LocalEndpoint::Options& options,
                                                const LocalEndpoint::Deps& deps) {
  auto context = std::make_shared<LocalContext>();
  context->store = deps.store;
  context->arena = deps.arena;
  context->copy_executor = deps.copy_executor;
  context->loop = std::move(loop);
  context->counters = deps.counters;
  context->gpu = deps.gpu;
  context->clock = deps.clock;
  context->times = deps.times;
  context->scratch = std::make_shared<PeerScratch>();
  context->limits = options.limits;
  if (context->limits.max_all_staging_bytes == 0) {
    context->limits.max_all_staging_bytes = deps.arena->capacity_bytes() / 4;
  }
  if (context->limits.max_gpu_get_bytes == 0) {
    context->limits.max_gpu_get_bytes = deps.arena->capacity_bytes() / 4;
  }
  context->limits.max_staging_bytes =
      std::min(context->limits.max_staging_bytes, context->limits.max_all_staging_bytes);
  context->limits.staging_by_calls = OvercommitIsStrict();
  context->version = options.version;
  context->serving_state = deps.serving_state;
  return context;
}

}  // namespace

LocalEndpoint::LocalEndpoint(std::shared_ptr<EventLoop> loop, const Options& options,
                             const Deps& deps)
    : loop_(loop),
      context_(MakeContext(std::move(loop), options, deps)),
      clock_(deps.clock),
      buffer_(local::kMaxPacketBytes) {
  round_.loop = loop_.get();
}

absl::StatusOr<std::unique_ptr<LocalEndpoint>> LocalEndpoint::Start(const Options& options,
                                                                    const Deps& deps) {
  KVKEEP_RETURN_IF_ERROR(options.limits.Validate());
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop,
                          EventLoop::Create(options.limits.busy_poll));
  std::unique_ptr<LocalEndpoint> endpoint(new LocalEndpoint(std::move(loop), options, deps));
  KVKEEP_RETURN_IF_ERROR(endpoint->Listen(options.listeners));
  endpoint->thread_ = std::thread([raw = endpoint.get()] { raw->Run(); });
  if (deps.sockets != nullptr) endpoint->WatchBy(deps.sockets);
  return endpoint;
}

LocalEndpoint::~LocalEndpoint() { Stop(); }

// Listens. Keys of the loop: from 1 on for the listeners, then for the connections.
absl::Status LocalEndpoint::Listen(const std::vector<ListenerOptions>& listeners) {
  for (const ListenerOptions& listener : listeners) {
    KVKEEP_ASSIGN_OR_RETURN(ListeningSocket socket,
                            ListeningSocket::Open(listener.socket, SOCK_SEQPACKET));
    const uint64_t all_staging = context_->limits.max_all_staging_bytes;
    listeners_.push_back(
        {.options = listener,
         .socket = std::move(socket),
         .staging = std::make_shared<StagingAccount>(
             listener.max_staging_bytes == 0 ? all_staging : listener.max_staging_bytes),
         .gpu = std::make_shared<GpuAccount>(
             GpuAccount::PartOf(context_->limits, listener.gpu_part), listener.gpu_rights),
         .messages = listener.messages != nullptr
                         ? listener.messages
                         : std::make_shared<MessageAccount>(context_->limits.max_message_bytes)});
    if (listener.max_connections == 0) {
      listeners_.back().options.max_connections = context_->limits.max_connections;
    }
    KVKEEP_RETURN_IF_ERROR(
        loop_->Watch(listeners_.back().socket.fd(), listeners_.size(), EPOLLIN));
  }
  next_id_ = listeners_.size() / LocalConnection::kChannels + 1;
  return absl::OkStatus();
}

void LocalEndpoint::WatchBy(SocketWatch* watch) {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    ListeningSocket* const socket = &listeners_[i].socket;
    watch->Watch(socket->file(), [this, socket, key = i + 1](SocketWatch::Done done) {
      loop_->Post([this, socket, key, done = std::move(done)] {
        done(socket->Renew());
        // If the socket was not renewed, the loop watches it already.
        (void)loop_->Watch(socket->fd(), key, paused_ ? 0 : uint32_t{EPOLLIN});
      });
    });
  }
}

void LocalEndpoint::NotifyDraining() {
  loop_->Post([this] {
    for (const auto& [id, open] : connections_) open.connection->NotifyDraining();
  });
}

void LocalEndpoint::SetMaxConnections(TenantId tenant, uint32_t connections) {
  loop_->Post([this, tenant, connections] {
    for (Listener& listener : listeners_) {
      if (listener.options.tenant == tenant) listener.options.max_connections = connections;
    }
  });
}

void LocalEndpoint::Stop() {
  if (!thread_.joinable()) return;
  loop_->Post([this] { stopping_ = true; });
  thread_.join();
  listeners_.clear();
  loop_->Close();
}

void LocalEndpoint::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-local");
  const milliseconds tick = std::clamp(context_->limits.grace / 16, milliseconds(5), kLongestTick);
  const EventLoop::OnEvent on_event = [this](uint64_t key, uint32_t events) {
    OnEvent(key, events);
  };
  while (!stopping_) {
    const bool idle = connections_.empty() && !paused_ &&
                      context_->counters->closing_descriptors.load(std::memory_order_relaxed) == 0;
    loop_->RunOnce(idle ? milliseconds(-1) : tick, on_event);
    SettleTouched();
    const MonotonicTime now = clock_->Now();
    if (now < next_tick_) continue;
    next_tick_ = now + tick;
    // This thread may not have run for long: what clients said until `now` counts.
    loop_->RunOnce(milliseconds(0), on_event);
    Tick(now);
    SettleTouched();
  }
  connections_.clear();
}

void LocalEndpoint::OnEvent(uint64_t key, uint32_t events) {
  if (key <= listeners_.size()) {
    Accept(key - 1);
    return;
  }
  const auto found = connections_.find(key / LocalConnection::kChannels);
  if (found == connections_.end()) return;
  const auto channel = static_cast<LocalConnection::Channel>(key % LocalConnection::kChannels);
  found->second.connection->OnEvent(channel, events, buffer_, clock_->Now());
}

void LocalEndpoint::SettleTouched() {
  for (size_t i = 0; i < round_.touched.size(); ++i) {
    const auto found = connections_.find(round_.touched[i]);
    if (found == connections_.end() || found->second.connection->Settle()) continue;
    GiveBackPlace(found->second);
    connections_.erase(found);
    context_->counters->closing_descriptors = DescriptorCloser::OfProcess().closing();
  }
  round_.touched.clear();
}

void LocalEndpoint::Accept(size_t listener) {
  const int from = listeners_[listener].socket.fd();
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    if (DescriptorCloser::OfProcess().Full(SocketsOf(listener))) return PauseAccepting();
    ExpendableFd socket(UniqueFd(accept4(from, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
                        SocketsOf(listener));
    if (socket.valid() && InDescriptorReserve(socket.get())) return PauseAccepting();
    if (socket.valid()) {
      Admit(listener, std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // A connection stays in the queue and keeps the socket readable: the next tick tries again.
    if (errno != EAGAIN && errno != EWOULDBLOCK) PauseAccepting();
    return;
  }
}

void LocalEndpoint::PauseAccepting() {
  context_->counters->accept_pauses.fetch_add(1, std::memory_order_relaxed);
  paused_ = true;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    loop_->Change(listeners_[i].socket.fd(), i + 1, 0);
  }
}

absl::Status LocalEndpoint::Judge(const Listener& listener,
                                  const absl::StatusOr<PeerCredentials>& peer) const {
  if (!peer.ok()) return peer.status();
  absl::Status allowed = listener.options.socket.policy.Check(*peer);
  if (!allowed.ok()) return allowed;
  const size_t limit = listener.options.max_connections;
  if (listener.open >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("connections: all ", limit, " of this socket of the local path are open"));
  }
  return absl::OkStatus();
}

bool LocalEndpoint::HasPlaceForRefused(const Listener& listener, uid_t user) {
  if (listener.refused >= kMostRefused) return false;
  const auto found = listener.refused_of.find(user);
  return found == listener.refused_of.end() || found->second < kMostRefusedOfUser;
}

void LocalEndpoint::GiveBackPlace(const Connected& closed) {
  Listener& listener = listeners_[closed.listener];
  if (!closed.refused.has_value()) {
    --listener.open;
    return;
  }
  --listener.refused;
  const auto user = listener.refused_of.find(*closed.refused);
  if (--user->second == 0) listener.refused_of.erase(user);
}

void LocalEndpoint::Admit(size_t number, ExpendableFd socket) {
  Listener& listener = listeners_[number];
  LocalCounters& counters = *context_->counters;
  counters.connections.fetch_add(1, std::memory_order_relaxed);
  const absl::StatusOr<PeerCredentials> peer = PeerOf(socket.get());
  const uid_t user = peer.ok() ? peer->uid : static_cast<uid_t>(-1);
  const DescriptorCloser::Owner closes = PassedBy(number, user);
  absl::Status refusal = Judge(listener, peer);
  std::optional<uid_t> refused;
  // Nothing is read from this user, not even the first message of a refused connection, as more
  // descriptors to close would come with it. Closing the socket unread waits for no file of the
  // user's.
  if (DescriptorCloser::OfProcess().Full(closes)) {
    counters.refused_connections.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!refusal.ok()) {
    counters.refused_connections.fetch_add(1, std::memory_order_relaxed);
    if (!HasPlaceForRefused(listener, user)) return;
    refused = user;
  }
  absl::StatusOr<UniqueFd> process = WatchPeer(socket.get());
  if (!process.ok()) return;  // the client is gone; at most a forked child has the other end
  const uint64_t id = next_id_++;
  auto connection = std::make_unique<LocalConnection>(
      context_, &round_, id, std::move(socket), *std::move(process),
      LocalPeer::Identity{.peer = peer.ok() ? absl::StrCat("local:", peer->ToString()) : "local",
                          .tenant = listener.options.tenant,
                          .grants = listener.options.grants,
                          .segments = listener.options.segments,
                          .shared = listener.options.shared,
                          .staging = listener.staging,
                          .gpu = listener.gpu,
                          .messages = listener.messages,
                          .gpu_owner = GpuOwner(id),
                          .process = peer.ok() ? peer->pid : 0,
                          .refusal = std::move(refusal),
                          .closes = closes},
      clock_->Now());
  if (!connection->Start().ok()) return;
  connections_.emplace(
      id, Connected{.listener = number, .refused = refused, .connection = std::move(connection)});
  if (refused.has_value()) {
    ++listener.refused;
    ++listener.refused_of[user];
  } else {
    ++listener.open;
  }
}

void LocalEndpoint::Tick(MonotonicTime now) {
  if (std::exchange(paused_, false)) {
    for (size_t i = 0; i < listeners_.size(); ++i) {
      loop_->Change(listeners_[i].socket.fd(), i + 1, EPOLLIN);
    }
  }
  for (const auto& [id, open] : connections_) open.connection->OnTick(buffer_, now);
  context_->counters->closing_descriptors = DescriptorCloser::OfProcess().closing();
}

}  // namespace kvkeep
