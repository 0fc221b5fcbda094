#include <algorithm>

#include "tests/e2e/daemon_fixture.h"

namespace kvkeep {

TEST_CASE("kvkeepd starts, stops with status 0 on SIGTERM, and starts again after a kill") {
  DaemonFixture daemon;
  daemon.Start();
  const uint64_t first = daemon.Status().incarnation();
  CHECK(daemon.Status().devices_size() == 1);
  CHECK(daemon.Stop() == 0);
  daemon.Start();
  CHECK(daemon.Status().incarnation() != first);
  daemon.Kill();
  daemon.Start();
  CHECK(daemon.Status().devices(0).state() == "ok");
  CHECK(daemon.Stop() == 0);
}

TEST_CASE("kvkeepd refuses a wrong config with status 78 and one line") {
  DaemonFixture daemon({.more = "nonsense: 1\n"});
  CHECK(daemon.StartAndWait() == 78);
  const std::string log = daemon.log();
  CHECK(std::count(log.begin(), log.end(), '\n') == 1);
  CHECK(log.find("nonsense") != std::string::npos);
}

TEST_CASE("kvkeepd refuses a file of which it cannot make a socket, and names it") {
  DaemonFixture daemon;
  std::ofstream(daemon.socket_path()) << "not a socket";
  CHECK(daemon.StartAndWait() == 78);
  CHECK(daemon.log().find("kvkeep.sock: is there and not a socket") != std::string::npos);
}

TEST_CASE("kvkeepd takes over the socket file of a daemon that was killed") {
  DaemonFixture daemon({.g3_capacity = ""});
  daemon.Start();
  daemon.Kill();
  CHECK(std::filesystem::exists(daemon.socket_path()));
  daemon.Start();
  CHECK(daemon.Stop() == 0);
}

}  // namespace kvkeep
