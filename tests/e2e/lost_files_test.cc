// Files of the daemon that are removed while it runs; and a log without a reader.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/engine.h"
#include "tests/fakes/free_port.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {
namespace {

namespace fs = std::filesystem;

constexpr milliseconds kPatience{30'000};

Settings WithAllSockets(int port) {
  Settings settings;
  settings.local = true;
  settings.metrics = absl::StrCat("127.0.0.1:", port);
  settings.metrics_socket = "metrics.sock";
  return settings;
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

UniqueFd ListenAt(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd.get(), 16) == 0);
  return fd;
}

bool IsReady(int port) { return absl::StrContains(HttpGet(port, "/readyz"), "200 OK"); }

}  // namespace

TEST_CASE("sockets that are removed under a daemon are there again, each with its mode") {
  const int port = FreePort();
  Site site(WithAllSockets(port));
  site.Start();
  const std::vector<std::string> sockets = {site.socket(), site.local_socket(),
                                            site.admin_socket(), site.path("metrics.sock")};
  std::vector<mode_t> modes;
  for (const std::string& path : sockets) {
    modes.push_back(ModeOf(path));
    REQUIRE(fs::remove(path));
  }
  for (size_t i = 0; i < sockets.size(); ++i) {
    INFO(sockets[i]);
    CHECK(Eventually([&] { return ModeOf(sockets[i]) == modes[i]; }, kPatience));
    CHECK(site.AwaitLog(absl::StrCat("its file was gone\" path=", sockets[i])));
  }
  Engine engine(site);
  CHECK(engine.client().path().path == client::Path::kLocal);
  CHECK(engine.Put({1, 1000}).status == client::PutStatus::kStored);
  Engine remote(site, {.path = client::PathChoice::kGrpc});
  CHECK(remote.Hits({{1, 1000}}) == 1);
  CHECK(Eventually([&] { return site.Counter("renewed_sockets") == sockets.size(); }));
  CHECK(site.Counter("lost_sockets") == 0);
  CHECK(IsReady(port));
}

TEST_CASE("a daemon that another socket keeps from its path is not ready until it is free") {
  const int port = FreePort();
  Site site(WithAllSockets(port));
  site.Start();
  const UniqueFd other = ListenAt(site.path("other.sock"));
  fs::rename(site.path("other.sock"), site.socket());
  CHECK(Eventually([&] { return !IsReady(port); }, kPatience));
  CHECK(site.AwaitLog("in use by another daemon", kPatience));
  CHECK(site.Counter("lost_sockets") == 1);
  const std::string page = HttpGet(port, "/readyz");
  CHECK(absl::StrContains(page, "1 Unix sockets cannot be reached"));
  CHECK_FALSE(absl::StrContains(page, site.socket()));  // anyone may read it
  REQUIRE(fs::remove(site.socket()));
  CHECK(Eventually([&] { return IsReady(port); }, kPatience));
  CHECK(Engine(site).Put({1, 1000}).status == client::PutStatus::kStored);
}

TEST_CASE("a device's directory that is emptied is told of, and what it has is served") {
  Site site;
  site.Start();
  Engine engine(site);
  REQUIRE(engine.PutAll(Chunks(1, 8, 100'000)));
  REQUIRE(site.AwaitClean());
  for (const auto& entry : fs::directory_iterator(site.path("nvme0"))) fs::remove_all(entry);
  CHECK(Eventually([&] { return site.Status().devices(0).state() == "degraded"; }, kPatience));
  CHECK_THAT(site.Status().devices(0).message(),
             Catch::Matchers::Contains(site.path("state/devices")));
  CHECK(site.AwaitLog("the files of a device are gone"));
  CHECK(engine.Hits(Chunks(1, 8, 100'000)) == 8);
}

TEST_CASE("a log that nobody reads holds up neither reloads nor the stop") {
  std::array<int, 2> ends{-1, -1};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const UniqueFd unread(ends[0]), full(ends[1]);
  while (write(full.get(), "x", 1) == 1) {
  }
  REQUIRE(fcntl(full.get(), F_SETFL, 0) == 0);
  Site site;
  const auto log_to_pipe = [to = full.get()] { dup2(to, STDERR_FILENO); };
  site.before_exec = log_to_pipe;
  site.Start();
  Engine engine(site);
  REQUIRE(engine.PutAll(Chunks(1, 8, 100'000), {.durable = true}));
  site.Signal(SIGHUP);  // which says something
  CHECK(engine.Hits(Chunks(1, 8, 100'000)) == 8);
  REQUIRE(site.Stop().exit_status == 0);

  site.before_exec = log_to_pipe;
  site.Start();
  CHECK(Eventually([&] { return site.Counter("dropped_log_lines") > 0; }));
}

}  // namespace kvkeep::e2e
