#include "server/sockets/acceptor.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "server/sockets/descriptor_reserve.h"
#include "server/sockets/tcp_socket.h"
#include "tiers/base/send_buffer.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr int kPauseMs = 100;  // after a failure, until the next attempt
constexpr int kAtOnce = 64;    // from one socket, before the others are looked at

// Returns whether the connection went away before it was accepted, which is no failure of ours.
bool ConnectionIsGone(int error) {
  return error == ECONNABORTED || error == EPROTO || error == EINTR || error == EPERM;
}

// Returns the owner of a listener's sockets, for DescriptorCloser.
DescriptorCloser::Owner ClosesOf(size_t socket) { return (uint64_t{1} << 48) + socket; }

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Open(std::vector<UnixSocketOptions> sockets,
                                                         Handlers handlers,
                                                         std::vector<UniqueFd> tcp) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(handlers)));
  acceptor->wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->wake_.valid()) {
    return absl::UnavailableError(absl::StrCat("cannot make an eventfd: ", std::strerror(errno)));
  }
  for (UnixSocketOptions& options : sockets) {
    KVKEEP_ASSIGN_OR_RETURN(ListeningSocket socket,
                            ListeningSocket::Open(std::move(options), SOCK_STREAM));
    acceptor->sockets_.push_back(std::move(socket));
  }
  acceptor->tcp_ = std::move(tcp);
  acceptor->thread_ = std::thread([raw = acceptor.get()] { raw->Run(); });
  return acceptor;
}

void Acceptor::WatchBy(SocketWatch* watch) {
  for (ListeningSocket& socket : sockets_) {
    watch->Watch(socket.file(), [this, &socket](SocketWatch::Done done) {
      Post([&socket, done = std::move(done)] { done(socket.Renew()); });
    });
  }
}

Acceptor::~Acceptor() {
  if (thread_.joinable()) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
  }
}

void Acceptor::Post(Task task) {
  {
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }
  Wake();
}

void Acceptor::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));  // an eventfd's counter has room
}

bool Acceptor::RunTasks() {
  uint64_t wakes = 0;
  (void)!read(wake_.get(), &wakes, sizeof(wakes));  // non-blocking
  std::vector<Task> tasks;
  {
    MutexLock lock(&mu_);
    if (stopping_) return false;
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) std::move(task)();
  return true;
}

void Acceptor::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-accept");
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (const ListeningSocket& socket : sockets_) polled.push_back({socket.fd(), POLLIN, 0});
  for (const UniqueFd& socket : tcp_) polled.push_back({socket.get(), POLLIN, 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0 && !RunTasks()) return;
    bool ok = true;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) ok &= AcceptFrom(polled[i].fd, std::min(i - 1, sockets_.size()));
    }
    if (!ok) poll(polled.data(), 1, kPauseMs);
  }
}

bool Acceptor::AcceptFrom(int listening, size_t socket) {
  const std::string name = socket < sockets_.size() ? sockets_[socket].options().path : "TCP";
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof(peer);
    if (DescriptorCloser::OfProcess().Full(ClosesOf(socket))) {
      handlers_.failed(absl::ResourceExhaustedError(
          absl::StrCat(name, ": descriptors: those of closed connections are not closed yet")));
      return false;
    }
    ExpendableFd fd(UniqueFd(accept4(listening, reinterpret_cast<sockaddr*>(&peer), &bytes,
                                     SOCK_CLOEXEC | SOCK_NONBLOCK)),
                    ClosesOf(socket));
    if (!fd.valid()) {
      if (errno == EAGAIN) return true;
      if (ConnectionIsGone(errno)) continue;
      handlers_.failed(
          absl::UnavailableError(absl::StrCat(name, ": cannot accept: ", std::strerror(errno))));
      return false;
    }
    // This connection is closed, and the others wait: each pause closes at most one.
    if (InDescriptorReserve(fd.get())) {
      handlers_.failed(absl::ResourceExhaustedError(absl::StrCat(
          name, ": descriptors: all but the daemon's reserve are in use; raise RLIMIT_NOFILE")));
      return false;
    }
    HandOn(socket, std::move(fd), TcpPeerAddress(peer));
  }
  return true;
}

void Acceptor::HandOn(size_t socket, ExpendableFd fd, std::string address) {
  Connection connection{.socket = socket, .fd = std::move(fd), .address = std::move(address)};
  if (socket < sockets_.size()) {
    WidenSendBuffer(connection.fd.get());  // the kernel tunes the buffers of TCP itself
    const absl::StatusOr<PeerCredentials> peer = PeerOf(connection.fd.get());
    if (peer.ok()) {
      connection.peer = *peer;
      connection.allowed = sockets_[socket].options().policy.Check(*peer);
    } else {
      connection.allowed = peer.status();
    }
  }
  handlers_.connected(std::move(connection));
}

}  // namespace kvkeep
