// The config of a daemon that is started without one.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "config/config.h"

namespace kvkeep {

// The user's environment: a daemon without any file keeps small tiers under the user's directory.
struct UserEnvironment {
  std::string home;            // $HOME
  std::string xdg_state_home;  // $XDG_STATE_HOME; a relative path is ignored

  // Returns this process's environment; the home is the effective user's if $HOME is not set.
  static UserEnvironment OfProcess();
};
// FailedPrecondition when there is no home, or it is too long to hold sockets.
absl::StatusOr<Config> EmbeddedDefaultConfig(const UserEnvironment& environment);

}  // namespace kvkeep
