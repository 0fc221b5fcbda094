#include "server/sockets/tcp_socket.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "server/sockets/sockets.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status Failed(absl::string_view address, const char* why) {
  return absl::UnavailableError(
      absl::StrCat(address, ": cannot listen there: ", why,
                   "; it is in use or not permitted: choose another in the config"));
}

bool Set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// Returns a listening socket; not valid, with errno set, if it cannot be had. Connections inherit
// the options set here.
UniqueFd ListenOn(const addrinfo& at, int peer_timeout_ms) {
  UniqueFd fd(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool ready = fd.valid() && Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) &&
                     Set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1) &&
                     Set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, peer_timeout_ms) &&
                     (at.ai_family != AF_INET6 || Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1)) &&
                     bind(fd.get(), at.ai_addr, at.ai_addrlen) == 0 &&
                     listen(fd.get(), kListenBacklog) == 0;
  if (ready) return fd;
  const int error = errno;
  fd.Reset();
  errno = error;
  return fd;
}

}  // namespace

absl::StatusOr<std::vector<UniqueFd>> ListenOnTcp(absl::string_view address,
                                                  std::chrono::milliseconds peer_timeout) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return Failed(address, "it is not host:port");
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(std::string(host).c_str(),
                                 std::string(address.substr(colon + 1)).c_str(), &hints, &found);
  if (failed != 0) return Failed(address, gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  std::vector<UniqueFd> sockets;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    sockets.push_back(ListenOn(*at, static_cast<int>(peer_timeout.count())));
    if (sockets.back().valid()) continue;
    // "localhost" may stand for an address that this machine does not have.
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      return Failed(address, std::strerror(errno));
    sockets.pop_back();
  }
  if (sockets.empty()) return Failed(address, "this machine has no such address");
  return sockets;
}

std::string TcpPeerAddress(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &peer, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return text;
  }
  if (peer.ss_family != AF_INET6) return "";
  sockaddr_in6 v6;
  std::memcpy(&v6, &peer, sizeof(v6));
  std::memset(v6.sin6_addr.s6_addr + 8, 0, 8);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

}  // namespace kvkeep
