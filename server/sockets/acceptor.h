// Acceptor: one thread that listens on Unix sockets, whose peers it identifies, and on TCP sockets.
//
// Every connection is handed on with its peer and the verdict of the socket's policy; the handler
// decides what becomes of it. Closing it never waits, whatever its peer has passed already
// (descriptor_closer.h). The socket files are removed with the acceptor, and made anew if they go
// before (socket_watch.h). As an Executor it runs tasks on its thread. When the process has no
// descriptor left but its reserve, connections wait in the sockets' queues.
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

#include "server/sockets/descriptor_closer.h"
#include "server/sockets/listening_socket.h"
#include "server/sockets/socket_watch.h"
#include "server/sockets/unix_socket.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class Acceptor final : public Executor {
 public:
  struct Connection {
    size_t socket = 0;     // index of its Unix socket; the number of Unix sockets: TCP
    ExpendableFd fd;       // non-blocking, close-on-exec
    PeerCredentials peer;  // by Unix sockets
    std::string address;   // by TCP: the peer's, without its port; of IPv6 the first 64 bits
    absl::Status allowed;  // the policy's verdict; Unavailable: the kernel does not know the peer
  };
  // Both run on the acceptor's thread.
  struct Handlers {
    absl::AnyInvocable<void(Connection)> connected;
    // accept(2) failed, or there are too few descriptors. The acceptor tries again after a pause.
    absl::AnyInvocable<void(absl::Status)> failed;
  };

  // Listens on all `sockets`; those of `tcp` listen already. Errors as ListenOnUnixSocket.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Open(std::vector<UnixSocketOptions> sockets,
                                                        Handlers handlers,
                                                        std::vector<UniqueFd> tcp = {});
  ~Acceptor() override;  // no handler runs any more when it returns
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void Post(Task task) override;
  // Has `watch` look at the Unix sockets, until it forgets them; that must be before this ends.
  void WatchBy(SocketWatch* watch);

 private:
  explicit Acceptor(Handlers handlers) : handlers_(std::move(handlers)) {}
  void Run();
  // Returns false if the thread must end.
  bool RunTasks();
  void Wake();
  // Accepts some of the waiting connections. Returns false if it lacks a resource to go on.
  bool AcceptFrom(int listening, size_t socket);
  void HandOn(size_t socket, ExpendableFd fd, std::string address);

  Handlers handlers_;
  std::vector<ListeningSocket> sockets_;  // renewed on the thread
  std::vector<UniqueFd> tcp_;
  UniqueFd wake_;  // eventfd
  Mutex mu_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kvkeep
