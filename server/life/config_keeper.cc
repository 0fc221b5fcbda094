#include "server/life/config_keeper.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "config/effective.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status Unreloadable() {
  return absl::FailedPreconditionError("this daemon was started without a config to read again");
}

uint64_t NowInSeconds(const ServerState& state) { return state.clock->UnixMicros() / 1'000'000; }

absl::Status RefuseIfRestart(const std::vector<ConfigDifference>& differences) {
  std::vector<ConfigDifference> refused;
  for (const ConfigDifference& difference : differences) {
    if (difference.change == ConfigChange::kRestart) refused.push_back(difference);
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("needs a restart, so nothing was changed: ", DescribeChanges(refused)));
}

}  // namespace

std::string DescribeChanges(const std::vector<ConfigDifference>& changes) {
  return absl::StrJoin(changes, ", ", [](std::string* out, const ConfigDifference& change) {
    absl::StrAppend(out, change.key, ": ", change.before, " -> ", change.after);
  });
}

ConfigKeeper::ConfigKeeper(std::optional<StartedConfig> started, ServerState* state, const Log* log)
    : state_(state), log_(log), sources_(started.has_value() ? started->sources : ConfigSources{}) {
  MutexLock lock(&mu_);
  state_->config.NoteTaken(started.has_value() ? ConfigHash(*started->loaded.config) : "",
                           NowInSeconds(*state_));
  if (!started.has_value()) return;
  current_ = std::move(started->loaded);
  reloads_ = true;
}

void ConfigKeeper::OnReload(TakeOver take_over) { take_over_ = std::move(take_over); }

absl::StatusOr<ConfigKeeper::Changes> ConfigKeeper::Reload() {
  // Taken first: a later caller of Ask may have changed the files after they were read, and has
  // signalled another reload.
  std::vector<Done> waiting;
  {
    MutexLock lock(&mu_);
    waiting.swap(waiting_);
  }
  const absl::StatusOr<Changes> reloaded = TryReload();
  Note(reloaded);
  for (Done& done : waiting) std::move(done)(reloaded);
  return reloaded;
}

absl::StatusOr<ConfigKeeper::Changes> ConfigKeeper::TryReload() {
  const std::optional<LoadResult> before = current();
  if (!before.has_value()) return Unreloadable();
  KVKEEP_CHECK(take_over_ != nullptr);
  LoadResult loaded = LoadConfigSources(sources_);
  if (!loaded.config.has_value()) {
    return absl::InvalidArgumentError(absl::StrJoin(loaded.errors, "\n"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const DaemonOptions options, ToDaemonOptions(*loaded.config));
  const Changes changes = DiffConfigs(*before->config, *loaded.config);
  KVKEEP_RETURN_IF_ERROR(RefuseIfRestart(changes));
  if (const absl::Status taken = take_over_(options); !taken.ok()) {
    return absl::Status(taken.code(),
                        absl::StrCat("not taken over, so nothing was changed: ",
                                     DescribeChanges(changes), ": ", taken.message()));
  }
  state_->config.NoteTaken(ConfigHash(*loaded.config), NowInSeconds(*state_));
  MutexLock lock(&mu_);
  current_ = std::move(loaded);  // even if no value changed: line numbers may have
  return changes;
}

void ConfigKeeper::Note(const absl::StatusOr<Changes>& reloaded) {
  if (!reloaded.ok()) {
    state_->config.NoteRefused();
    log_->Error("config not reloaded; the previous one stays in use",
                {{"reason", std::string(reloaded.status().message())}});
    return;
  }
  log_->Always("config reloaded",
               {{"changes", DescribeChanges(*reloaded)}, {"hash", state_->config.hash()}});
}

void ConfigKeeper::Ask(Done done) {
  {
    MutexLock lock(&mu_);
    if (reloads_) waiting_.push_back(std::exchange(done, nullptr));
  }
  if (done != nullptr) return std::move(done)(Unreloadable());
  // Signals the process: every thread blocks SIGHUP, and the main one waits for it.
  kill(getpid(), SIGHUP);
}

void ConfigKeeper::EndWaits() {
  std::vector<Done> waiting;
  {
    MutexLock lock(&mu_);
    waiting.swap(waiting_);
    reloads_ = false;
  }
  for (Done& done : waiting) std::move(done)(absl::UnavailableError("the daemon stops"));
}

std::optional<LoadResult> ConfigKeeper::current() const {
  MutexLock lock(&mu_);
  return current_;
}

}  // namespace kvkeep
