// ConfigKeeper: holds the config that a daemon runs by, and reloads it. A reload reads all sources
// again, checks them and compares them with it; the changes are taken over as a whole, or not at
// all.
//
// Reload is for the daemon's main thread, as it reads files. Ask wakes that thread by a SIGHUP, as
// an operator would, and answers when the reload is done. Thread-safe otherwise.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

#include "config/change.h"
#include "config/sources.h"
#include "server/life/options.h"
#include "server/observe/log.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

// The config that a daemon was started with.
struct StartedConfig {
  ConfigSources sources;
  LoadResult loaded;
};

class ConfigKeeper {
 public:
  using Changes = std::vector<ConfigDifference>;  // each of them live
  using Done = absl::AnyInvocable<void(const absl::StatusOr<Changes>&) &&>;
  // Takes over the options that may change; the rest are as they were. On an error nothing was
  // taken over.
  using TakeOver = absl::AnyInvocable<absl::Status(const DaemonOptions&)>;

  // `started`: none if the options were not made of a config; then a reload is FailedPrecondition.
  // Borrows `state` and `log`.
  ConfigKeeper(std::optional<StartedConfig> started, ServerState* state, const Log* log);

  // Call before the first Reload. A reload that is asked for earlier waits, as listeners open while
  // the daemon still starts.
  void OnReload(TakeOver take_over);
  // Reloads the config, and answers earlier calls of Ask. InvalidArgument: the config is wrong, a
  // line for each error. FailedPrecondition: the change needs a restart; names each key. TakeOver's
  // error, with all that was to change. The result is logged and counted.
  absl::StatusOr<Changes> Reload();
  void Ask(Done done);
  // Answers all earlier and later calls of Ask that the daemon stops.
  void EndWaits();

  // Returns the current config; none: see the constructor.
  std::optional<LoadResult> current() const;
  std::string file() const { return sources_.file; }

 private:
  absl::StatusOr<Changes> TryReload();
  void Note(const absl::StatusOr<Changes>& reloaded);

  ServerState* const state_;
  const Log* const log_;
  const ConfigSources sources_;
  TakeOver take_over_;  // the main thread's
  mutable Mutex mu_;
  std::optional<LoadResult> current_ ABSL_GUARDED_BY(mu_);
  bool reloads_ ABSL_GUARDED_BY(mu_) = false;  // somebody waits for signals, or is about to
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mu_);
};

// "log.level: info -> debug, limits.sessions: 1024 -> 2048".
std::string DescribeChanges(const std::vector<ConfigDifference>& changes);

}  // namespace kvkeep
