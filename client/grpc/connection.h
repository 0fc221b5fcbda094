// Connection: one connection to the daemon, as a gRPC channel, that can be broken off.
//
// gRPC ends no call, whatever its deadline, before the socket has taken what the call is writing: a
// put to a stopped daemon would wait for ever, and hold the memory it refers to. Over a Unix socket
// the descriptor is ours, and Break ends every call on it. Over TCP the kernel does that after a
// third of ClientOptions::peer_timeout.
//
// Thread-safe. Calls keep the channel; any holder of the Connection can break it.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "client/values/security.h"

namespace kvkeep::client {

class Connection {
 public:
  // `endpoint` as in ClientOptions; `security` is for TCP. UNAVAILABLE: nobody listens there;
  // INVALID_ARGUMENT: a file of `security` cannot be used.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& endpoint,
                                                          const SecurityOptions& security,
                                                          std::chrono::milliseconds peer_timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Returns the metadata "authorization" of every call; empty: none.
  const std::string& authorization() const { return authorization_; }
  // Breaks the connection: nothing is sent or received any more, and calls end with UNAVAILABLE.
  void Break();
  // Returns whether the daemon has closed the Unix socket. Over TCP gRPC reconnects by itself.
  bool closed() const;

 private:
  Connection(std::shared_ptr<grpc::Channel> channel, int socket, std::string authorization)
      : channel_(std::move(channel)), socket_(socket), authorization_(std::move(authorization)) {}

  const std::shared_ptr<grpc::Channel> channel_;
  const int socket_;  // ours, of the same connection as gRPC's; -1: TCP
  const std::string authorization_;
};

// Security of a "host:port" endpoint: TLS or not, and the metadata that carries the token, if any.
struct TcpSecurity {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string authorization;
};
absl::StatusOr<TcpSecurity> SecurityOf(const SecurityOptions& options,
                                       grpc::ChannelArguments* arguments);

}  // namespace kvkeep::client
