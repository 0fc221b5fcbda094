#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "config/embedded.h"

namespace kvkeep {

TEST_CASE("without a file the tiers are small and under the user's own directory") {
  const Config config = *EmbeddedDefaultConfig({.home = "/homes/ada"});
  CHECK(config.state.dir == "/homes/ada/.local/state/kvkeep");
  CHECK(config.listen.unix_path == "/homes/ada/.local/state/kvkeep/kvkeep.sock");
  CHECK(config.listen.local_path == "/homes/ada/.local/state/kvkeep/local.sock");
  CHECK(config.listen.admin_path == "/homes/ada/.local/state/kvkeep/admin.sock");
  CHECK(config.listen.tcp_address.empty());
  CHECK(config.g2.capacity_bytes == kGiB);
  CHECK(config.g3.paths == std::vector<G3PathConfig>{{.dir = "/homes/ada/.local/state/kvkeep/nvme0",
                                                      .capacity_bytes = 8 * kGiB}});
  CHECK(config.metrics.listen_address == "127.0.0.1:9464");
}

TEST_CASE("XDG_STATE_HOME goes before HOME unless it is relative") {
  const auto dir = [](const std::string& home, const std::string& xdg) {
    return EmbeddedDefaultConfig({.home = home, .xdg_state_home = xdg})->state.dir;
  };
  CHECK(dir("/homes/ada", "/state") == "/state/kvkeep");
  CHECK(dir("/homes/ada", "state") == "/homes/ada/.local/state/kvkeep");
  CHECK(dir("", "/state") == "/state/kvkeep");
  CHECK(dir("/root", "") == "/root/.local/state/kvkeep");
  CHECK(dir("/", "") == "/.local/state/kvkeep");
}

TEST_CASE("the embedded config is one that could stand in a file") {
  const Config config = *EmbeddedDefaultConfig({.home = "/homes/ada"});
  CHECK(LoadConfig(PrintConfig(config), "embedded").config == config);
}

TEST_CASE("without a home, or with one too long for sockets, there is no embedded config") {
  const absl::Status none = EmbeddedDefaultConfig({.home = "ada", .xdg_state_home = ""}).status();
  CHECK(none.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(none.message(), "neither XDG_STATE_HOME nor HOME is an absolute path"));
  const absl::Status longer =
      EmbeddedDefaultConfig({.home = absl::StrCat("/", std::string(90, 'h'))}).status();
  CHECK(longer.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(longer.message(), "a Unix socket's path has at most 107"));
  CHECK(absl::StrContains(longer.message(), "set XDG_STATE_HOME to a shorter path"));
}

TEST_CASE("the environment is that of this process, with the user's home for want of HOME") {
  const char* before = std::getenv("HOME");
  const std::string home = before == nullptr ? "" : before;
  setenv("HOME", "/somewhere", 1);
  setenv("XDG_STATE_HOME", "/elsewhere", 1);
  CHECK(UserEnvironment::OfProcess().home == "/somewhere");
  CHECK(UserEnvironment::OfProcess().xdg_state_home == "/elsewhere");
  unsetenv("HOME");
  unsetenv("XDG_STATE_HOME");
  CHECK(UserEnvironment::OfProcess().xdg_state_home.empty());
  CHECK(UserEnvironment::OfProcess().home != "/somewhere");
  if (before != nullptr) setenv("HOME", home.c_str(), 1);
}

}  // namespace kvkeep
