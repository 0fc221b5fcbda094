// Router: the transports of one client, and which of them a call takes. Internal.
//
// The local transport is made first, if there can be one; the gRPC transport is made only when the
// local path is absent or refused. Both live as long as the router. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/transport/transport.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class LocalTransport;

struct NamespaceState {
  NamespaceSpec spec;             // constant
  const Router* owner = nullptr;  // constant

  mutable Mutex mu;
  // By Path; null: not opened with that transport yet.
  std::array<std::shared_ptr<NamespaceBinding>, 2> bindings ABSL_GUARDED_BY(mu);
};

class Router {
 public:
  // REQUIRES: options.Validate() is OK.
  explicit Router(ClientOptions options);
  ~Router();

  // Returns the transport for a call that begins now. Never null: if no transport is connected, its
  // calls fail with the reason.
  Transport* Pick();
  // Like Pick, for a call that gRPC does not have. While the daemon is away, or comes back, returns
  // the local transport, whose calls are UNAVAILABLE. On the gRPC transport these calls fail with a
  // message that they need the local path.
  Transport* PickForLocal();
  // Returns the transport of a path, for calls under a lease that it granted.
  Transport* Of(Path path);
  PathInfo path();

  // Makes a call with a callback and waits for it, on a thread that the transport may use
  // meanwhile.
  template <typename T, typename Start>
  T Await(Start&& start) {
    Completion<T> completion;
    Pick()->RunBlocking([&] { start([&](T value) { completion.Set(std::move(value)); }); },
                        &completion);
    return completion.Take();
  }

  // Waits until one of the transports has a session.
  bool WaitConnected(Deadline timeout);
  ClientStats stats();

  absl::StatusOr<std::shared_ptr<NamespaceState>> OpenNamespace(const NamespaceSpec& spec,
                                                                Deadline deadline);
  // Returns the namespace as `transport` knows it, opened there first if needed.
  absl::StatusOr<std::shared_ptr<NamespaceBinding>> Bind(const std::shared_ptr<NamespaceState>& ns,
                                                         Transport* transport);

 private:
  bool LocalUsable() const;
  Transport* grpc() const;  // null: not made yet
  Transport* MakeGrpc();    // once
  Path path_of(const Transport* transport) const;

  const ClientOptions options_;
  const std::string local_socket_;
  std::unique_ptr<LocalTransport> local_;  // constant after construction; null: there can be none

  mutable Mutex mu_;
  std::unique_ptr<Transport> grpc_ ABSL_GUARDED_BY(mu_);  // set once
  std::vector<std::shared_ptr<NamespaceState>> namespaces_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
