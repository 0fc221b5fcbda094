#include "config/embedded.h"

#include <absl/strings/str_cat.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "config/values.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

std::string HomeOfUser(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> buffer;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return entry.pw_dir;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

UserEnvironment UserEnvironment::OfProcess() {
  UserEnvironment environment{Variable("HOME"), Variable("XDG_STATE_HOME")};
  if (environment.home.empty()) environment.home = HomeOfUser(geteuid());
  return environment;
}

absl::StatusOr<Config> EmbeddedDefaultConfig(const UserEnvironment& environment) {
  std::string base;
  if (CheckPath(environment.xdg_state_home).ok()) {
    base = environment.xdg_state_home;
  } else if (CheckPath(environment.home).ok()) {
    base = absl::StrCat(environment.home == "/" ? "" : environment.home, "/.local/state");
  } else {
    return absl::FailedPreconditionError(
        "no configuration file, and neither XDG_STATE_HOME nor HOME is an absolute path to keep "
        "state under; set one, or give a configuration file");
  }
  const std::string dir = absl::StrCat(base, "/kvkeep");
  Config config;
  config.state.dir = dir;
  config.listen.unix_path = absl::StrCat(dir, "/kvkeep.sock");
  config.listen.local_path = absl::StrCat(dir, "/local.sock");
  config.listen.admin_path = absl::StrCat(dir, "/admin.sock");
  config.g2.capacity_bytes = 1 * kGiB;
  config.g3.paths = {{.dir = absl::StrCat(dir, "/nvme0"), .capacity_bytes = 8 * kGiB}};
  for (const std::string& path :
       {config.listen.unix_path, config.listen.local_path, config.listen.admin_path}) {
    if (const absl::Status status = CheckSocketPath(path); !status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no configuration file, and under the state directory: ", status.message(),
                       "; set XDG_STATE_HOME to a shorter path, or give a configuration file"));
    }
  }
  return config;
}

}  // namespace kvkeep
