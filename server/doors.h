// Doors: the gRPC servers of a daemon. One serves clients (Unix socket, loopback TCP when asked
// for), one serves Admin on a socket of its own, mode 0600. Both have health and reflection.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/admin_service.h"
#include "server/kv_service.h"

namespace kvkeep {

class Doors {
 public:
  struct Options {
    std::string socket_path;
    std::string admin_socket_path;
    std::string tcp_address;  // empty: off
  };
  // Listens. The services must outlive this. Unavailable: an address cannot be had.
  static absl::StatusOr<std::unique_ptr<Doors>> Open(const Options& options, KvService* kv,
                                                     AdminService* admin);
  ~Doors();  // as Close(0)

  // What the health service says of kvkeep.v1.KvCache; "" is SERVING for as long as the process
  // lives.
  void SetServing(bool serving);
  // Takes no new calls, lets those under way end until `grace` passed, then cancels them. Returns
  // when none is left.
  void Close(std::chrono::milliseconds grace);

 private:
  Doors() = default;
  std::unique_ptr<grpc::Server> admin_, clients_;
};

}  // namespace kvkeep
