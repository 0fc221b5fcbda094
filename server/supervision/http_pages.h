// HttpPages: a few pages over HTTP for whoever watches a node; GET and HEAD only.
//
// One thread listens, reads and writes, and waits for nobody: a client that sends half a request,
// or does not read the answer, holds one of kMostConnections places until its time is over, and
// loses it before if a newcomer needs it. So pages that are made on that thread, which are the
// plain ones, are answered at once whatever others do. Guarded pages take longer to make and are
// made on another thread, one after the other.
//
// What a guarded page shows depends on who asks: everything by the Unix socket, whose file says who
// may connect, and to who sends a token that is known ("Authorization: Bearer TOKEN"). Where tokens
// are known nobody else gets it by TCP (401); where none is, everybody gets the page of those who
// may not see everything. Each connection is closed after its answer.
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
  static constexpr std::chrono::seconds kRequestTime{5};  // until a request is there
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
  // By path, such as "/healthz": that very one, nothing below it.
  using Makers = std::map<std::string, Maker>;

  struct Options {
    std::string address;                           // host:port; empty: none
    std::optional<UnixSocketOptions> unix_socket;  // none: no such socket
    // On the thread that makes guarded pages; null: no token is known.
    std::function<bool(absl::string_view token)> knows_token;
    HttpCounters* counters = nullptr;  // null: nothing is counted
    // Looks at the Unix socket; has forgotten it before the pages end. Null: nobody does.
    SocketWatch* sockets = nullptr;
  };

  // None is being made when this has returned.
  virtual ~HttpPages() = default;
};

// Unavailable when a socket cannot be had; the message says nothing of who configured it.
absl::StatusOr<std::unique_ptr<HttpPages>> ServeHttpPages(HttpPages::Options options,
                                                          HttpPages::Makers makers);

}  // namespace kvkeep
