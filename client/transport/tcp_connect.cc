#include "client/transport/tcp_connect.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "client/values/security.h"

namespace kvkeep::client {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

}  // namespace

bool AwaitReady(int fd, short events, std::chrono::steady_clock::time_point give_up) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      give_up - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd polled{fd, events, 0};
  return poll(&polled, 1, static_cast<int>(left.count())) == 1;
}

absl::StatusOr<UniqueFd> ConnectTcp(const std::string& endpoint,
                                    std::chrono::steady_clock::time_point give_up) {
  const std::string host = HostOf(endpoint);
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat(endpoint, ": ", gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    UniqueFd fd(socket(next->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    const int on = 1;
    (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd.get(), next->ai_addr, next->ai_addrlen) == 0) return fd;
    int error = errno;
    socklen_t size = sizeof(error);
    if (error == EINPROGRESS && AwaitReady(fd.get(), POLLOUT, give_up) &&
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
      return fd;
    }
  }
  return absl::UnavailableError(absl::StrCat(endpoint, ": nobody listens there"));
}

}  // namespace kvkeep::client
