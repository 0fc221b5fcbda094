// ConfigKeeper: the config that a daemon runs by, and its reload: all sources are read again,
// checked and compared with it; what is new is taken over as a whole, or not at all.
//
// Reloads are for one thread, the daemon's main one, as they read files: Ask has it woken by a
// SIGHUP, as an operator would, and answers whoever asked when it is done. Thread-safe otherwise.
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

// What a daemon was started with.
struct StartedConfig {
  ConfigSources sources;
  LoadResult loaded;
};

class ConfigKeeper {
 public:
  using Changes = std::vector<ConfigDifference>;  // each of them live
  using Done = absl::AnyInvocable<void(const absl::StatusOr<Changes>&) &&>;
  // Takes over what may change of the options, whose rest is as it was. An error: nothing was.
  using TakeOver = absl::AnyInvocable<absl::Status(const DaemonOptions&)>;

  // `started`: none, where the options are no config's; then a reload is FailedPrecondition.
  // Borrows `state` and `log`.
  ConfigKeeper(std::optional<StartedConfig> started, ServerState* state, const Log* log);

  // Before the first Reload. A reload that is asked for earlier waits, as listeners open while the
  // daemon still starts.
  void OnReload(TakeOver take_over);
  // InvalidArgument: what it says is wrong, a line for each error. FailedPrecondition: it changes
  // what needs a restart; names each key. What TakeOver says: with all that was to change. Logged
  // and counted; answers who asked before.
  absl::StatusOr<Changes> Reload();
  void Ask(Done done);
  // Whoever asked, or asks from now on, is told that the daemon stops.
  void EndWaits();

  // As it is now; none: see the constructor.
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
