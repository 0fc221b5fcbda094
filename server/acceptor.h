// Acceptor: one thread that listens on Unix sockets and learns who connects.
//
// Every connection is handed on with its peer and with what the socket's policy says of it; what
// becomes of it, refused or not, is the handler's business. The socket files go when the acceptor
// does. When the process has no descriptor left, connections wait in the sockets' queues.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/unix_socket.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class Acceptor {
 public:
  struct Connection {
    size_t socket = 0;  // index of the socket it came in by
    UniqueFd fd;        // non-blocking, close-on-exec
    PeerCredentials peer;
    absl::Status allowed;  // the policy's word; Unavailable: the kernel does not tell who it is
  };
  // Both run on the acceptor's thread.
  struct Handlers {
    absl::AnyInvocable<void(Connection)> connected;
    absl::AnyInvocable<void(absl::Status)> failed;  // accept(2) did: tried again in a while
  };

  // Listens on all of them. Errors as ListenOnUnixSocket.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Open(std::vector<UnixSocketOptions> sockets,
                                                        Handlers handlers);
  ~Acceptor();  // no handler runs any more when it returns
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  struct Listening {
    UnixSocketOptions options;
    UniqueFd fd;
    dev_t device = 0;  // of the socket's file
    ino_t inode = 0;
  };

  explicit Acceptor(Handlers handlers) : handlers_(std::move(handlers)) {}
  absl::Status Listen(UnixSocketOptions options);
  void Run();
  // All that wait there; false: accept failed for want of something.
  bool AcceptFrom(size_t socket);

  Handlers handlers_;
  std::vector<Listening> sockets_;
  UniqueFd stop_;  // eventfd
  std::thread thread_;
};

}  // namespace kvkeep
