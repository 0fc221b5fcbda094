// HttpPages: a few pages over HTTP for monitoring a node; GET and HEAD only.
//
// One thread listens, reads and writes, and waits for nobody: a client that sends half a request,
// or does not read the answer, holds one of kMostConnections places until its time is over, and
// loses it before if a newcomer needs it. So plain pages, which are made on that thread, are
// answered at once whatever other clients do. Guarded pages take longer to make and are made on
// another thread, one after the other.
//
// A guarded page shows everything by the Unix socket, whose file says who may connect, and to
// clients that send a known token ("Authorization: Bearer TOKEN"). By TCP without such a token a
// client is refused (401) if any tokens are known, and otherwise gets the page with less. Each
// connection is closed after its answer.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/sockets/socket_watch.h"
#include "server/sockets/unix_socket.h"
#include "server/supervision/http_counters.h"

namespace kvkeep {

class HttpPages {
 public:
  static constexpr size_t kMostConnections = 256;
  static constexpr size_t kMostWaiting = 16;  // for guarded pages; more are answered 503
  static constexpr std::chrono::seconds kRequestTime{5};  // until a request is complete
  static constexpr std::chrono::seconds kReplyTime{10};   // until its answer is taken

  struct Page {
    int status = 200;
    std::string body;
    const char* content_type = "text/plain; charset=utf-8";
  };
  struct Maker {
    std::function<Page(bool everything)> make;
    bool guarded = false;
  };
  // By path, such as "/healthz", matched exactly.
  using Makers = std::map<std::string, Maker>;

  struct Options {
    std::string address;                           // host:port; empty: none
    std::optional<UnixSocketOptions> unix_socket;  // none: no such socket
    // Runs on the thread that makes guarded pages; null: no token is known.
    std::function<bool(absl::string_view token)> knows_token;
    HttpCounters* counters = nullptr;  // null: nothing is counted
    // Watches the Unix socket, until before the pages end. Null: nothing watches it.
    SocketWatch* sockets = nullptr;
  };

  // After this returns, no page is being made.
  virtual ~HttpPages() = default;
};

// Unavailable when a socket cannot be had; the message says nothing of who configured it.
absl::StatusOr<std::unique_ptr<HttpPages>> ServeHttpPages(HttpPages::Options options,
                                                          HttpPages::Makers makers);

}  // namespace kvkeep
