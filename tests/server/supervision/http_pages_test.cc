#include "server/supervision/http_pages.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>

#include "tests/fakes/free_port.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

std::string Ask(int port, const std::string& method, const std::string& path) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const std::string request = absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(write(fd.get(), request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::string reply;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd.get(), buffer.data(), buffer.size())) > 0;) {
    reply.append(buffer.data(), static_cast<size_t>(n));
  }
  return reply;
}

}  // namespace

TEST_CASE("pages are made anew whenever they are asked for") {
  std::atomic<int> asked{0};
  const int port = FreePort();
  auto pages = ServeHttpPages(
      absl::StrCat("127.0.0.1:", port),
      {{"/count", [&] { return HttpPages::Page{.body = absl::StrCat("n=", ++asked)}; }},
       {"/bad", [] { return HttpPages::Page{.status = 503, .body = "why"}; }}});
  REQUIRE(pages.ok());
  for (const char* expected : {"n=1", "n=2"}) {
    const std::string reply = Ask(port, "GET", "/count");
    CHECK(absl::StartsWith(reply, "HTTP/1.1 200 OK\r\n"));
    CHECK(absl::StrContains(reply, "Content-Type: text/plain; charset=utf-8\r\n"));
    CHECK(absl::EndsWith(reply, absl::StrCat("\r\n\r\n", expected)));
  }
  const std::string head = Ask(port, "HEAD", "/count");
  CHECK(absl::StrContains(head, "Content-Length: 3\r\n"));
  CHECK(absl::EndsWith(head, "\r\n\r\n"));
  const std::string bad = Ask(port, "GET", "/bad");
  CHECK(absl::StartsWith(bad, "HTTP/1.1 503 "));
  CHECK(absl::EndsWith(bad, "\r\n\r\nwhy"));
}

TEST_CASE("nothing else is there to be asked for, nor may anything be changed") {
  const int port = FreePort();
  auto pages = ServeHttpPages(absl::StrCat("127.0.0.1:", port),
                              {{"/page", [] { return HttpPages::Page{.body = "body"}; }}});
  REQUIRE(pages.ok());
  for (const char* path : {"/", "/page/below", "/pages", "/../etc/passwd", "/CMakeLists.txt"}) {
    const std::string reply = Ask(port, "GET", path);
    INFO(path << ": " << reply);
    CHECK(absl::StartsWith(reply, "HTTP/1.1 4"));
    CHECK_FALSE(absl::StrContains(reply, "body"));
  }
  for (const char* method : {"POST", "PUT", "DELETE", "NONSENSE"}) {
    INFO(method);
    CHECK(absl::StartsWith(Ask(port, method, "/page"), "HTTP/1.1 4"));
  }
}

TEST_CASE("an address that cannot be had is an error") {
  int port = 0;
  const UniqueFd taken = BindFreePort(&port);
  REQUIRE(listen(taken.get(), 1) == 0);
  for (const std::string& address :
       {absl::StrCat("127.0.0.1:", port), std::string("192.0.2.1:1")}) {
    const auto pages = ServeHttpPages(address, {});
    CHECK(absl::IsUnavailable(pages.status()));
    CHECK(absl::StrContains(pages.status().message(), address));
  }
}

}  // namespace kvkeep
