#include "server/supervision/http_pages.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <vector>

#include "server/supervision/page_request.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

using Page = HttpPages::Page;

UniqueFd Connect(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

UniqueFd Connect(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

void Say(const UniqueFd& fd, const std::string& text) {
  REQUIRE(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
}

std::string Request(const std::string& method, const std::string& path,
                    const std::string& headers = "") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n");
}

// Returns everything that comes until the server closes.
std::string Hear(const UniqueFd& fd) {
  std::string reply;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd.get(), buffer.data(), buffer.size())) > 0;) {
    reply.append(buffer.data(), static_cast<size_t>(n));
  }
  return reply;
}

std::string Ask(int port, const std::string& method, const std::string& path,
                const std::string& headers = "") {
  const UniqueFd fd = Connect(port);
  Say(fd, Request(method, path, headers));
  return Hear(fd);
}

HttpPages::Options At(int port) { return {.address = absl::StrCat("127.0.0.1:", port)}; }

}  // namespace

TEST_CASE("pages are made anew whenever they are asked for") {
  std::atomic<int> asked{0};
  const int port = FreePort();
  auto pages = ServeHttpPages(
      At(port),
      {{"/count", {.make = [&](bool) { return Page{.body = absl::StrCat("n=", ++asked)}; }}},
       {"/bad", {.make = [](bool) { return Page{.status = 503, .body = "why"}; }}}});
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
  auto pages =
      ServeHttpPages(At(port), {{"/page", {.make = [](bool) { return Page{.body = "body"}; }}}});
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
    const auto pages = ServeHttpPages({.address = address}, {});
    CHECK(absl::IsUnavailable(pages.status()));
    CHECK(absl::StrContains(pages.status().message(), address));
  }
}

TEST_CASE("a plain page is answered whoever sends half requests, and however many") {
  const int port = FreePort();
  HttpCounters counters;
  HttpPages::Options options = At(port);
  options.counters = &counters;
  const auto pages = ServeHttpPages(
      options, {{"/healthz", {.make = [](bool) { return Page{.body = "ok"}; }}}});
  REQUIRE(pages.ok());
  std::vector<UniqueFd> slow;
  const auto came = std::chrono::steady_clock::now();
  for (size_t i = 0; i < HttpPages::kMostConnections + 100; ++i) {
    slow.push_back(Connect(port));
    Say(slow.back(), "GET /healthz HTTP/1.1\r\nHost");
  }
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) CHECK(absl::EndsWith(Ask(port, "GET", "/healthz"), "ok"));
  const auto took = std::chrono::steady_clock::now() - began;
  const uint64_t crowded_out = counters.crowded_out;
  CHECK(Hear(slow.front()).empty());
  // One that is still there goes on where it was.
  Say(slow.back(), ": x\r\n\r\n");
  const std::string rest = Hear(slow.back());
  const uint64_t late = counters.slow;
  // On a machine that was so busy that the time of some was over, nothing of this is sure.
  if (std::chrono::steady_clock::now() - came < HttpPages::kRequestTime) {
    CHECK(took < HttpPages::kRequestTime / 2);
    CHECK(crowded_out >= 100);  // the oldest of them
    CHECK(absl::EndsWith(rest, "ok"));
    CHECK(late == 0);
  } else {
    WARN("skipped: this machine is too busy");
  }
  // The others wait until their time is over.
  CHECK(Hear(slow[slow.size() - 2]).empty());
  CHECK(counters.slow > 0);
}

TEST_CASE("while a guarded page is being made, plain ones are answered, and too many are refused") {
  const int port = FreePort();
  std::promise<void> go_on;
  std::shared_future<void> may = go_on.get_future().share();
  std::atomic<int> made{0};
  auto pages = ServeHttpPages(At(port), {{"/metrics",
                                          {.make =
                                               [&](bool) {
                                                 may.wait();
                                                 ++made;
                                                 return Page{.body = "numbers"};
                                               },
                                           .guarded = true}},
                                         {"/healthz", {.make = [](bool) { return Page{}; }}}});
  REQUIRE(pages.ok());
  std::vector<UniqueFd> waiting;
  for (size_t i = 0; i < HttpPages::kMostWaiting; ++i) {
    waiting.push_back(Connect(port));
    Say(waiting.back(), Request("GET", "/metrics"));
    CHECK(absl::StartsWith(Ask(port, "GET", "/healthz"), "HTTP/1.1 200"));
  }
  CHECK(absl::StartsWith(Ask(port, "GET", "/metrics"), "HTTP/1.1 503"));
  waiting.front().Reset();  // it does not wait any more
  go_on.set_value();
  for (size_t i = 1; i < waiting.size(); ++i) {
    CHECK(absl::EndsWith(Hear(waiting[i]), "\r\n\r\nnumbers"));
  }
  CHECK(made == HttpPages::kMostWaiting);
}

TEST_CASE("all of a guarded page is for the Unix socket, and for who has a token that is known") {
  const ScratchDir dir;
  const int port = FreePort();
  HttpCounters counters;
  HttpPages::Options options = At(port);
  options.unix_socket = UnixSocketOptions{.path = dir / "metrics.sock", .mode = 0600};
  options.counters = &counters;
  const HttpPages::Makers makers = {
      {"/metrics",
       {.make = [](bool everything) { return Page{.body = everything ? "all" : "sums"}; },
        .guarded = true}},
      {"/healthz", {.make = [](bool) { return Page{.body = "ok"}; }}}};
  const std::string good = "authorization:  bearer secret \r\n";
  const std::string bad = "Authorization: Bearer other\r\n", basic = "Authorization: Basic x\r\n";
  const auto by_unix = [&dir] {
    const UniqueFd fd = Connect(dir / "metrics.sock");
    Say(fd, Request("GET", "/metrics?x=y"));
    return Hear(fd);
  };
  SECTION("no token is known") {
    const auto pages = ServeHttpPages(options, makers);
    REQUIRE(pages.ok());
    for (const std::string& headers : {std::string(), good, bad}) {
      CHECK(absl::EndsWith(Ask(port, "GET", "/metrics", headers), "\r\n\r\nsums"));
    }
    CHECK(absl::EndsWith(by_unix(), "\r\n\r\nall"));
    struct stat info {};
    REQUIRE(stat((dir / "metrics.sock").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
  }
  SECTION("one is") {
    options.knows_token = [](absl::string_view token) { return token == "secret"; };
    const auto pages = ServeHttpPages(options, makers);
    REQUIRE(pages.ok());
    CHECK(absl::EndsWith(Ask(port, "GET", "/metrics", good), "\r\n\r\nall"));
    for (const std::string& headers : {std::string(), bad, basic}) {
      const std::string reply = Ask(port, "GET", "/metrics", headers);
      INFO(reply);
      CHECK(absl::StartsWith(reply, "HTTP/1.1 401 "));
      CHECK(absl::StrContains(reply, "\r\nWWW-Authenticate: Bearer\r\n"));
      CHECK_FALSE(absl::StrContains(reply, "sums"));
    }
    CHECK(counters.unauthorised == 3);
    CHECK(absl::StartsWith(Ask(port, "GET", "/metrics", good + bad), "HTTP/1.1 400 "));
    CHECK(absl::EndsWith(Ask(port, "GET", "/healthz"), "ok"));
    CHECK(absl::EndsWith(by_unix(), "\r\n\r\nall"));
  }
}

TEST_CASE("a page larger than a socket takes at once comes whole, also to who sent a body") {
  const int port = FreePort();
  const std::string body(20 << 20, 'x');
  auto pages = ServeHttpPages(
      At(port), {{"/large", {.make = [&](bool) { return Page{.body = body}; }}}});
  REQUIRE(pages.ok());
  const std::string reply = Ask(port, "GET", "/large");
  CHECK(reply.size() > body.size());
  CHECK(absl::EndsWith(reply, body));
  const UniqueFd fd = Connect(port);
  Say(fd, Request("POST", "/large", "Content-Length: 100000\r\n") + std::string(100'000, 'b'));
  CHECK(absl::StartsWith(Hear(fd), "HTTP/1.1 405 "));
}

TEST_CASE("what is no request is told so, and one without an end is not waited for") {
  const int port = FreePort();
  const auto pages = ServeHttpPages(At(port), {});
  REQUIRE(pages.ok());
  const auto answer = [port](const std::string& text) {
    const UniqueFd fd = Connect(port);
    Say(fd, text);
    return Hear(fd);
  };
  for (const char* text :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
        "GET x HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n", "\x16\x03\x01\r\n\r\n"}) {
    INFO(text);
    CHECK(absl::StartsWith(answer(text), "HTTP/1.1 400 "));
  }
  CHECK(absl::StartsWith(answer("GET /" + std::string(kMaxHttpHeadBytes, 'x')), "HTTP/1.1 431 "));
}

}  // namespace kvkeep
