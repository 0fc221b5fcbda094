// Daemon: a whole kvkeepd in one process, from its options to its end.
//
// Start builds everything in order and undoes it when a step fails; RunUntilSignal serves, then
// drains and stops. One daemon per process, as it owns the process's signals.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>

#include "server/life/config_keeper.h"
#include "server/life/options.h"

namespace kvkeep {

// Exit statuses of kvkeepd.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitConfig = 78;  // EX_CONFIG: starting again changes nothing

class Daemon {
 public:
  // Blocks SIGTERM, SIGINT and SIGHUP in this thread and all threads that it makes later. Call it
  // before any thread is made. Keeps core dumps and debuggers away from the process, unless
  // KVKEEPD_DUMPABLE=1.
  static void PrepareProcess();

  // `config_source` names the config in the log. `options` were made of `config`, whose sources a
  // reload reads again; none: a reload is refused. InvalidArgument: the configuration is wrong
  // (kExitConfig). Any other error: kExitFailure. The message is one line: what, where, what to do.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options,
                                                       const std::string& config_source,
                                                       std::optional<StartedConfig> config = {});
  ~Daemon();

  // Serves, and reloads its config at each SIGHUP, until SIGTERM or SIGINT, then drains: puts end,
  // dirty chunks are written back within the drain timeout, devices are synced, calls end. A second
  // signal ends the process at once. Returns the exit status.
  int RunUntilSignal();

 private:
  struct Components;
  int AwaitStopSignal();
  explicit Daemon(std::unique_ptr<Components> components);
  std::unique_ptr<Components> components_;
};

}  // namespace kvkeep
