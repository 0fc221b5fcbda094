// A client of the daemon, in a child process (child_process.h). Free functions.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "client/client.h"
#include "tools/bench/client_target.h"

namespace kvkeep::bench {

// Tunes this process's malloc, as an engine's is, and connects. Unavailable; FailedPrecondition
// when path local is not to be had.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectTo(const ClientTarget& target,
                                                          std::string client_name);

// What clients of the same seed call their chunks.
client::NamespaceSpec NamespaceOf(const ClientTarget& target);

}  // namespace kvkeep::bench
