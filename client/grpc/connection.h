// Connection: one connection to the daemon, as a gRPC channel, that can be broken off.
//
// gRPC ends no call before the socket has taken what the call is writing, whatever its deadline: a
// put to a daemon that is stopped would wait for it for ever, and so would the memory it refers to.
// Over a Unix socket the descriptor is ours, and Break makes every call on it end. Over TCP the
// kernel does that after a third of ClientOptions::peer_timeout.
//
// Thread-safe. Calls keep the channel; whoever holds a Connection can break it.
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
  // `endpoint` as in ClientOptions; `security` is for TCP. UNAVAILABLE: plainly nobody listens
  // there; INVALID_ARGUMENT: a file of `security` cannot be used.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& endpoint,
                                                          const SecurityOptions& security,
                                                          std::chrono::milliseconds peer_timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Goes with every call, as metadata "authorization"; empty: none.
  const std::string& authorization() const { return authorization_; }
  // Nothing is sent or received any more; calls end with UNAVAILABLE.
  void Break();
  // Over a Unix socket: whether the daemon has closed it. Over TCP gRPC connects again by itself.
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
