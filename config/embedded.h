// The config of a daemon that was given none.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "config/config.h"

namespace kvkeep {

// What a user runs without any file: small tiers under a directory of their own.
struct UserEnvironment {
  std::string home;            // $HOME
  std::string xdg_state_home;  // $XDG_STATE_HOME; a relative one does not count

  // Of this process; the home of the effective user when $HOME is not set.
  static UserEnvironment OfProcess();
};
// FailedPrecondition when there is no home, or it is too long to hold sockets.
absl::StatusOr<Config> EmbeddedDefaultConfig(const UserEnvironment& environment);

}  // namespace kvkeep
