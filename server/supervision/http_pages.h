// HttpPages: a few pages over HTTP for whoever watches a node; GET and HEAD only.
//
// Pages are made on the server's own threads when asked for, two at most at a time; none is being
// made when the destructor has returned. A peer that is slow loses its connection after five
// seconds. By civetweb.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace kvkeep {

class HttpPages {
 public:
  struct Page {
    int status = 200;
    std::string body;
    const char* content_type = "text/plain; charset=utf-8";
  };
  // By path, such as "/healthz": that very one, nothing below it.
  using Makers = std::map<std::string, std::function<Page()>>;

  virtual ~HttpPages() = default;
};

// Listens on `address` (host:port). Unavailable when that cannot be had; the message says nothing
// of who configured it.
absl::StatusOr<std::unique_ptr<HttpPages>> ServeHttpPages(const std::string& address,
                                                          HttpPages::Makers makers);

}  // namespace kvkeep
