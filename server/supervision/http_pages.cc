#include "server/supervision/http_pages.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "server/sockets/descriptor_closer.h"
#include "server/sockets/descriptor_reserve.h"
#include "server/sockets/event_loop.h"
#include "server/sockets/receive_bytes.h"
#include "server/sockets/tcp_socket.h"
#include "server/supervision/page_request.h"
#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kFirstConnection = 1'000;  // keys below are those of listening sockets
constexpr int kMostAcceptedAtOnce = 64;
constexpr auto kLingerTime = std::chrono::seconds(1);      // after the answer, for the client's end
constexpr auto kPause = std::chrono::milliseconds(100);    // while no descriptor is free
constexpr auto kPeerTimeout = std::chrono::seconds(20);    // of TCP, beyond any time here

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

enum class Phase { kReading, kMaking, kWriting, kLingering };

DescriptorCloser::Owner ConnectionsBy(size_t socket) { return (uint64_t{7} << 48) + socket; }
// Returns the owner of descriptors that come by this connection of the Unix socket: its user.
DescriptorCloser::Owner PassedBy(int connection) {
  const absl::StatusOr<PeerCredentials> peer = PeerOf(connection);
  return (uint64_t{8} << 48) + (peer.ok() ? peer->uid : 0);
}

struct HttpConnection {
  ExpendableFd fd;
  DescriptorCloser::Owner passed = 0;  // charged with descriptors that come by it; 0: none come
  bool trusted = false;  // by the Unix socket
  bool head_only = false;
  Phase phase = Phase::kReading;
  steady_clock::time_point deadline;
  std::string in, out;
  size_t sent = 0;
};

class EpollPages final : public HttpPages {
 public:
  EpollPages(Options options, Makers makers, std::shared_ptr<EventLoop> loop)
      : options_(std::move(options)), makers_(std::move(makers)), loop_(std::move(loop)) {}
  ~EpollPages() override {
    if (thread_.joinable()) {
      loop_->Post([this] { stopping_ = true; });
      thread_.join();
    }
    maker_.reset();  // runs what is queued
    loop_->Close();
  }

  absl::Status Start() {
    if (!options_.address.empty()) {
      KVKEEP_ASSIGN_OR_RETURN(tcp_, ListenOnTcp(options_.address, kPeerTimeout));
    }
    if (options_.unix_socket.has_value()) {
      KVKEEP_ASSIGN_OR_RETURN(ListeningSocket socket,
                              ListeningSocket::Open(*options_.unix_socket, SOCK_STREAM));
      unix_.emplace(std::move(socket));
    }
    for (size_t i = 0; i < listeners(); ++i) {
      KVKEEP_RETURN_IF_ERROR(loop_->Watch(listener(i), i + 1, EPOLLIN));
    }
    if (unix_.has_value() && options_.sockets != nullptr) {
      options_.sockets->Watch(unix_->file(), [this](SocketWatch::Done done) {
        loop_->Post([this, done = std::move(done)] { RenewUnixSocket(done); });
      });
    }
    maker_.emplace("kvkeep-pages", 1);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

 private:
  // The listeners of TCP, then the Unix socket.
  size_t listeners() const { return tcp_.size() + (unix_.has_value() ? 1 : 0); }
  int listener(size_t i) const { return i < tcp_.size() ? tcp_[i].get() : unix_->fd(); }

  void RenewUnixSocket(const SocketWatch::Done& done) {
    done(unix_->Renew());
    // If the socket was not renewed, the loop already watches it.
    const uint32_t events = paused_until_.has_value() ? 0 : uint32_t{EPOLLIN};
    (void)loop_->Watch(unix_->fd(), listeners(), events);
  }

  void Run() {
    pthread_setname_np(pthread_self(), "kvkeep-metrics");
    while (!stopping_) {
      loop_->RunOnce(Timeout(), [this](uint64_t key, uint32_t events) { OnEvent(key, events); });
      DropLate();
    }
    connections_.clear();
  }

  // Returns the time until the first of all deadlines, rounded up; negative: there is none.
  std::chrono::milliseconds Timeout() const {
    std::optional<steady_clock::time_point> first = paused_until_;
    for (const auto& [key, connection] : connections_) {
      if (connection.phase == Phase::kMaking) continue;
      if (!first.has_value() || connection.deadline < *first) first = connection.deadline;
    }
    if (!first.has_value()) return std::chrono::milliseconds(-1);
    const auto left = *first - steady_clock::now();
    if (left <= left.zero()) return std::chrono::milliseconds(0);
    return std::chrono::ceil<std::chrono::milliseconds>(left);
  }

  void OnEvent(uint64_t key, uint32_t events) {
    if (key < kFirstConnection) return Accept(key);
    const auto found = connections_.find(key);
    if (found == connections_.end()) return;  // dropped for a newer connection
    HttpConnection& connection = found->second;
    switch (connection.phase) {
      case Phase::kReading:
        return Read(key, connection);
      case Phase::kWriting:
        return Write(key, connection);
      case Phase::kLingering:
        return Linger(key, connection);
      case Phase::kMaking:  // only a hang-up is of interest
        if ((events & (EPOLLHUP | EPOLLERR)) != 0) Drop(key);
    }
  }

  void Accept(uint64_t key) {
    const size_t socket = key - 1;
    for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
      if (DescriptorCloser::OfProcess().Full(ConnectionsBy(socket))) return Pause(socket);
      ExpendableFd fd(UniqueFd(accept4(listener(socket), nullptr, nullptr,
                                       SOCK_CLOEXEC | SOCK_NONBLOCK)),
                      ConnectionsBy(socket));
      if (!fd.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Pause();
        return;
      }
      if (InDescriptorReserve(fd.get())) return Pause();
      if (connections_.size() >= kMostConnections) DropOldest();
      const uint64_t id = next_++;
      const bool trusted = socket >= tcp_.size();
      if (!loop_->Watch(fd.get(), id, EPOLLIN).ok()) continue;
      const DescriptorCloser::Owner passed = trusted ? PassedBy(fd.get()) : 0;
      connections_[id] = {.fd = std::move(fd),
                          .passed = passed,
                          .trusted = trusted,
                          .head_only = false,
                          .phase = Phase::kReading,
                          .deadline = steady_clock::now() + kRequestTime,
                          .in = {},
                          .out = {}};
    }
  }

  // Pauses accepting: otherwise a waiting connection would wake this thread again at once.
  void Pause(size_t socket) {
    if (!paused_until_.has_value()) paused_until_ = steady_clock::now() + kPause;
    loop_->Change(listener(socket), socket + 1, 0);
  }
  void Pause() {
    for (size_t i = 0; i < listeners(); ++i) Pause(i);
  }
  void Resume() {
    paused_until_.reset();
    for (size_t i = 0; i < listeners(); ++i) loop_->Change(listener(i), i + 1, EPOLLIN);
  }

  // The loop forgets the connection first, as it may stay open for a while (descriptor_closer.h).
  void Drop(uint64_t key) {
    const auto found = connections_.find(key);
    loop_->Forget(found->second.fd.get());
    connections_.erase(found);
  }

  // Drops answered connections first, then those without a complete request, as an honest client
  // sends it at once.
  void DropOldest() {
    for (const Phase phase : {Phase::kLingering, Phase::kReading, Phase::kWriting}) {
      for (const auto& [key, connection] : connections_) {
        if (connection.phase != phase) continue;
        if (phase != Phase::kLingering) Count(&HttpCounters::crowded_out);
        return Drop(key);
      }
    }
  }

  void DropLate() {
    const auto now = steady_clock::now();
    if (paused_until_.has_value() && now >= *paused_until_) Resume();
    for (auto next = connections_.begin(); next != connections_.end();) {
      const auto& [key, connection] = *next++;
      if (connection.phase == Phase::kMaking || now < connection.deadline) continue;
      if (connection.phase != Phase::kLingering) Count(&HttpCounters::slow);
      Drop(key);
    }
  }

  static ssize_t Receive(const HttpConnection& connection, std::span<char> buffer) {
    if (connection.passed == 0) return recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
    return ReceiveBytes(connection.fd.get(), buffer, 0, connection.passed);
  }

  void Read(uint64_t key, HttpConnection& connection) {
    std::array<char, 4096> buffer;
    while (true) {
      const ssize_t got = Receive(connection, buffer);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) return Drop(key);
      connection.in.append(buffer.data(), static_cast<size_t>(got));
      const size_t end = connection.in.find("\r\n\r\n");
      if (end != std::string::npos) return Answer(key, connection, end + 2);
      if (connection.in.size() > kMaxHttpHeadBytes) {
        return Reply(key, connection, {.status = 431, .body = "the request is too long\n"});
      }
    }
  }

  void Answer(uint64_t key, HttpConnection& connection, size_t head_bytes) {
    const std::optional<PageRequest> request =
        ParsePageRequest(absl::string_view(connection.in).substr(0, head_bytes));
    if (!request.has_value()) {
      return Reply(key, connection, {.status = 400, .body = "not a request of HTTP/1.1\n"});
    }
    connection.head_only = request->method == "HEAD";
    if (request->method != "GET" && !connection.head_only) {
      return Reply(key, connection, {.status = 405, .body = "only GET and HEAD\n"});
    }
    const auto maker = makers_.find(request->path);
    if (maker == makers_.end()) {
      return Reply(key, connection, {.status = 404, .body = "no such page\n"});
    }
    if (!maker->second.guarded) return Reply(key, connection, maker->second.make(false));
    if (waiting_ >= kMostWaiting) {
      return Reply(key, connection, {.status = 503, .body = "too many requests for this page\n"});
    }
    ++waiting_;
    connection.phase = Phase::kMaking;
    loop_->Change(connection.fd.get(), key, 0);
    maker_->Post([this, key, trusted = connection.trusted, token = request->token,
                  make = &maker->second.make] {
      loop_->Post([this, key, page = Guarded(trusted, token, *make)] { OnMade(key, page); });
    });
  }

  // Runs on the thread that makes guarded pages.
  Page Guarded(bool trusted, const std::optional<std::string>& token,
               const std::function<Page(bool)>& make) {
    if (trusted || options_.knows_token == nullptr) return make(trusted);
    if (token.has_value() && options_.knows_token(*token)) return make(true);
    Count(&HttpCounters::unauthorised);
    return {.status = 401, .body = "this page needs a known token\n"};
  }

  void OnMade(uint64_t key, const Page& page) {
    --waiting_;
    const auto found = connections_.find(key);
    if (found != connections_.end()) Reply(key, found->second, page);
  }

  void Reply(uint64_t key, HttpConnection& connection, const Page& page) {
    connection.in.clear();
    connection.out = absl::StrCat(
        "HTTP/1.1 ", page.status, " ", Reason(page.status), "\r\nContent-Type: ", page.content_type,
        "\r\nContent-Length: ", page.body.size(),
        page.status == 401 ? "\r\nWWW-Authenticate: Bearer" : "",
        page.status == 405 ? "\r\nAllow: GET, HEAD" : "",
        "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
    if (!connection.head_only) connection.out.append(page.body);
    connection.phase = Phase::kWriting;
    connection.deadline = steady_clock::now() + kReplyTime;
    Write(key, connection);
  }

  void Write(uint64_t key, HttpConnection& connection) {
    while (connection.sent < connection.out.size()) {
      const ssize_t sent = send(connection.fd.get(), connection.out.data() + connection.sent,
                                connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        return loop_->Change(connection.fd.get(), key, EPOLLOUT);
      }
      if (sent < 0) return Drop(key);
      connection.sent += static_cast<size_t>(sent);
    }
    // Closed with bytes unread, such as a request's body, the answer could be lost on its way.
    shutdown(connection.fd.get(), SHUT_WR);
    connection.out = {};
    connection.phase = Phase::kLingering;
    connection.deadline = steady_clock::now() + kLingerTime;
    loop_->Change(connection.fd.get(), key, EPOLLIN);
  }

  void Linger(uint64_t key, HttpConnection& connection) {
    std::array<char, 4096> buffer;
    const ssize_t got = Receive(connection, buffer);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
    Drop(key);
  }

  void Count(HttpCounters::Counter HttpCounters::*counter) {
    if (options_.counters == nullptr) return;
    (options_.counters->*counter).fetch_add(1, std::memory_order_relaxed);
  }

  const Options options_;
  const Makers makers_;
  const std::shared_ptr<EventLoop> loop_;
  std::vector<UniqueFd> tcp_;
  std::optional<ListeningSocket> unix_;  // renewed on the thread
  // Used by the thread only.
  std::map<uint64_t, HttpConnection> connections_;  // the oldest first
  uint64_t next_ = kFirstConnection;
  size_t waiting_ = 0;  // for guarded pages
  std::optional<steady_clock::time_point> paused_until_;
  bool stopping_ = false;

  std::optional<ThreadPool> maker_;  // posts to the loop
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPages>> ServeHttpPages(HttpPages::Options options,
                                                          HttpPages::Makers makers) {
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop,
                          EventLoop::Create(BusyPoll::Duration(0)));
  auto pages =
      std::make_unique<EpollPages>(std::move(options), std::move(makers), std::move(loop));
  KVKEEP_RETURN_IF_ERROR(pages->Start());
  return pages;
}

}  // namespace kvkeep
