// Access to the metrics port of the real daemon. No client can keep its health from the supervisor.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "tests/e2e/engine.h"
#include "tests/fakes/free_port.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {
namespace {

constexpr char kNoToken[] = "";
constexpr const char* kNames[] = {"victim", "secret-model", "tenant=", "model=", "namespace=",
                                  "path=",  "nvme0"};

// A tenant of its own that has put and got something, and the port.
class WatchedSite {
 public:
  explicit WatchedSite(bool with_token) : site(SettingsFor(port, with_token)) {
    const std::string socket = site.path("victim.sock");
    absl::StrAppend(&site.settings.extra, "tenants:\n  - {name: victim, g2_share: 25%, unix: ",
                    socket, "}\n");
    site.Start();
    client::NamespaceSpec spec = Engine::DefaultSpec();
    spec.model = "secret-model";
    Engine victim("unix://" + socket, {.name = "victim", .spec = spec});
    REQUIRE(victim.PutAll(Chunks(1, 2, 50'000)));
    REQUIRE(victim.Hits(Chunks(1, 2, 50'000)) == 2);
  }

  const int port = FreePort();
  Site site;

 private:
  static Settings SettingsFor(int port, bool with_token) {
    Settings settings;
    settings.segment_bytes = "4MiB";
    settings.metrics = absl::StrCat("127.0.0.1:", port);
    settings.metrics_token = with_token;
    settings.metrics_socket = "metrics.sock";
    return settings;
  }
};

std::string GetByUnix(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  REQUIRE(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  std::string reply;
  std::array<char, 65536> buffer;
  for (ssize_t n; (n = read(fd.get(), buffer.data(), buffer.size())) > 0;) {
    reply.append(buffer.data(), static_cast<size_t>(n));
  }
  return reply;
}

void CheckNames(const std::string& metrics, bool named) {
  for (const char* name : kNames) {
    INFO(name);
    CHECK(absl::StrContains(metrics, name) == named);
  }
}

}  // namespace

TEST_CASE("the metrics port names no tenant, model or path; the Unix socket tells all") {
  const WatchedSite watched(/*with_token=*/false);
  const std::string shown = HttpGet(watched.port, "/metrics", kNoToken);
  CHECK(absl::StartsWith(shown, "HTTP/1.1 200 "));
  CheckNames(shown, false);
  // All metrics of the node are shown.
  CHECK(absl::StrContains(shown, "\nkvkeep_tokens_saved_total 512\n"));
  CHECK(absl::StrContains(shown, "\nkvkeep_read_chunks_total{result=\"hit\",tier=\"g2\"} 2\n"));
  CHECK(absl::StrContains(shown, "\nkvkeep_device_state_info{state=\"ok\"} 1\n"));
  const std::string socket = watched.site.path("metrics.sock");
  struct stat info {};
  REQUIRE(stat(socket.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CheckNames(GetByUnix(socket), true);
}

TEST_CASE("where a token is known the metrics port shows all to who has it, to others nothing") {
  WatchedSite watched(/*with_token=*/true);
  const std::string all = HttpGet(watched.port, "/metrics");
  CheckNames(all, true);
  CHECK(absl::StrContains(all, "\nkvkeep_http_unauthorised_requests_total 0\n"));
  for (const char* token : {kNoToken, "another-one-that-is-wrong"}) {
    const std::string refused = HttpGet(watched.port, "/metrics", token);
    CHECK(absl::StartsWith(refused, "HTTP/1.1 401 "));
    CHECK_FALSE(absl::StrContains(refused, "kvkeep_"));
  }
  CHECK(absl::StartsWith(HttpGet(watched.port, "/healthz", kNoToken), "HTTP/1.1 200 "));
  CHECK(absl::StartsWith(HttpGet(watched.port, "/readyz", kNoToken), "HTTP/1.1 200 "));
  CHECK(absl::StrContains(HttpGet(watched.port, "/metrics"),
                          "\nkvkeep_http_unauthorised_requests_total 2\n"));
  // A token that is taken out of the file stops working without a restart.
  WriteFile(watched.site.path("metrics-tokens"), std::string(64, 'a') + "\n");
  CHECK(Eventually([&] {
    return absl::StartsWith(HttpGet(watched.port, "/metrics"), "HTTP/1.1 401 ");
  }));
}

TEST_CASE("health is answered at once, however many clients send half a request each", "[times]") {
  Settings settings;
  const int port = FreePort();
  settings.metrics = absl::StrCat("127.0.0.1:", port);
  settings.metrics_token = false;
  Site site(settings);
  site.Start();
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const size_t many = std::min<rlim_t>(1'000, files.rlim_cur / 2);
  std::vector<UniqueFd> slow;
  size_t asked = 0, late = 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (size_t i = 0; i < many; ++i) {
    slow.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(slow[i].get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    constexpr absl::string_view kHalf = "GET /healthz HTTP/1.1\r\nHost: a";
    REQUIRE(send(slow[i].get(), kHalf.data(), kHalf.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(kHalf.size()));
    if (i % 30 != 29) continue;
    const auto began = std::chrono::steady_clock::now();
    CHECK(absl::StartsWith(HttpGet(port, "/healthz"), "HTTP/1.1 200 "));
    const auto took = std::chrono::steady_clock::now() - began;
    CHECK(took < std::chrono::seconds(4));  // half requests have 5
    ++asked;
    if (took >= std::chrono::seconds(1)) ++late;  // for the kubelet
  }
  CHECK(late <= asked / 10);  // a busy machine delays some
  CHECK(absl::StrContains(HttpGet(port, "/metrics"),
                          "kvkeep_http_dropped_connections_total{reason=\"crowded_out\"} "));
}

}  // namespace kvkeep::e2e
