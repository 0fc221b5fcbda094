#include "server/supervision/http_pages.h"

#include <CivetServer.h>
#include <absl/strings/str_cat.h>

#include <cstring>
#include <utility>
#include <vector>

namespace kvkeep {
namespace {

const char* Reason(int status) { return status == 200 ? "OK" : "Service Unavailable"; }

class Handler final : public CivetHandler {
 public:
  Handler(std::string path, std::function<HttpPages::Page()> make)
      : path_(std::move(path)), make_(std::move(make)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Answer(connection, /*with_body=*/true);
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    return Answer(connection, /*with_body=*/false);
  }

 private:
  bool Answer(mg_connection* connection, bool with_body) {
    // civetweb gives us what lies below the path too.
    if (path_ != mg_get_request_info(connection)->local_uri) {
      mg_send_http_error(connection, 404, "%s", "no such page");
      return true;
    }
    const HttpPages::Page page = make_();
    std::string reply = absl::StrCat(
        "HTTP/1.1 ", page.status, " ", Reason(page.status), "\r\nContent-Type: ", page.content_type,
        "\r\nContent-Length: ", page.body.size(), "\r\nCache-Control: no-store\r\n\r\n");
    if (with_body) reply.append(page.body);
    mg_write(connection, reply.data(), reply.size());
    return true;
  }

  const std::string path_;
  const std::function<HttpPages::Page()> make_;
};

class CivetPages final : public HttpPages {
 public:
  // Throws what civetweb throws when the address cannot be had.
  CivetPages(const std::string& address, Makers makers)
      : server_(std::vector<std::string>{"listening_ports", address, "num_threads", "2",
                                         "request_timeout_ms", "5000", "enable_keep_alive", "no"}) {
    for (auto& [path, make] : makers) {
      handlers_.push_back(std::make_unique<Handler>(path, std::move(make)));
      server_.addHandler(path, handlers_.back().get());
    }
  }
  ~CivetPages() override { server_.close(); }

 private:
  std::vector<std::unique_ptr<Handler>> handlers_;
  CivetServer server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPages>> ServeHttpPages(const std::string& address,
                                                          HttpPages::Makers makers) {
  try {
    return std::make_unique<CivetPages>(address, std::move(makers));
  } catch (const std::exception&) {  // the library has no other way to say it
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": in use or not an address of this machine"));
  }
}

}  // namespace kvkeep
