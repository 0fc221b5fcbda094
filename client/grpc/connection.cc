#include "client/grpc/connection.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client/grpc/grpc_client.h"
#include "proto/http2_settings.h"
#include "tiers/base/send_buffer.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

// The largest message is a Get frame: 4 MiB of payload, a metadata tail and a few small fields.
constexpr int kMaxReceiveBytes = 5 * kMiB;

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  // Without this, gRPC would share the connection, and its own backoff, with earlier sessions.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  args.SetMaxSendMessageSize(-1);
  return args;
}

absl::Status Failed(absl::string_view path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<TcpSecurity> SecurityOf(const SecurityOptions& options,
                                       grpc::ChannelArguments* arguments) {
  KVKEEP_ASSIGN_OR_RETURN(const SecurityMaterial material, LoadSecurity(options));
  TcpSecurity security;
  if (!material.token.empty()) security.authorization = "Bearer " + material.token;
  if (!options.tls()) {
    security.credentials = grpc::InsecureChannelCredentials();
    return security;
  }
  security.credentials = grpc::SslCredentials({.pem_root_certs = material.ca,
                                               .pem_private_key = material.key,
                                               .pem_cert_chain = material.cert});
  if (!options.server_name.empty()) arguments->SetSslTargetNameOverride(options.server_name);
  return security;
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(
    const std::string& endpoint, const SecurityOptions& security,
    std::chrono::milliseconds peer_timeout) {
  KVKEEP_RETURN_IF_ERROR(KeepGrpcLoaded());
  grpc::ChannelArguments args = Arguments();
  absl::string_view path = endpoint;
  if (!absl::ConsumePrefix(&path, "unix:")) {
    SetHttp2(Http2Link::kNetwork, &args);
    // gRPC uses the second value also as the timeout for unacknowledged data.
    const auto timeout = static_cast<int>(peer_timeout.count());
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, timeout - timeout / 3);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout / 3);
    // By default gRPC stops after two pings without data in between.
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    KVKEEP_ASSIGN_OR_RETURN(TcpSecurity tcp, SecurityOf(security, &args));
    return std::unique_ptr<Connection>(
        new Connection(grpc::CreateCustomChannel(endpoint, tcp.credentials, args), -1,
                       std::move(tcp.authorization)));
  }
  SetHttp2(Http2Link::kThisMachine, &args);
  absl::ConsumePrefix(&path, "//");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError("endpoint: too long");
  std::memcpy(address.sun_path, path.data(), path.size());

  const int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_fd < 0) return Failed(path, "cannot make a socket");
  WidenSendBuffer(socket_fd);
  // On a Unix socket connect succeeds at once or not at all.
  if (connect(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    const absl::Status failed = Failed(path, "connect");
    close(socket_fd);
    return failed;
  }
  const int ours = fcntl(socket_fd, F_DUPFD_CLOEXEC, 0);
  if (ours < 0) {
    const absl::Status failed = Failed(path, "dup");
    close(socket_fd);
    return failed;
  }
  // gRPC closes `socket_fd`.
  return std::unique_ptr<Connection>(
      new Connection(grpc::CreateCustomInsecureChannelFromFd("kvkeep", socket_fd, args), ours, ""));
}

Connection::~Connection() {
  if (socket_ >= 0) close(socket_);
}

bool Connection::closed() const {
  if (socket_ < 0) return false;
  pollfd asked{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return poll(&asked, 1, 0) == 1 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::Break() {
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

}  // namespace kvkeep::client
