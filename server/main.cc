// kvkeepd: the daemon's command line. daemon.h does the work.
#include <absl/synchronization/mutex.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/effective.h"
#include "config/sources.h"
#include "server/daemon.h"
#include "server/life/kill_point.h"
#include "server/life/options.h"
#include "server/version.h"

namespace kvkeep {
namespace {

int Fail(int exit_status, const std::string& line) {
  std::fprintf(stderr, "kvkeepd: %s\n", line.c_str());
  return exit_status;
}

int FailWith(const absl::Status& status) {
  const bool config = status.code() == absl::StatusCode::kInvalidArgument;
  return Fail(config ? kExitConfig : kExitFailure, std::string(status.message()));
}

void Say(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::fprintf(stderr, "kvkeepd: %s\n", line.c_str());
}

// Returns the one line that a failed start prints.
absl::Status FirstError(const LoadResult& loaded, const std::string& file) {
  std::string line = loaded.errors.front();
  if (loaded.errors.size() > 1) {
    absl::StrAppend(&line, " (", loaded.errors.size(), " errors: see kvkeepd --check-config ", file,
                    ")");
  }
  return absl::InvalidArgumentError(line);
}

int CheckConfig(const ConfigSources& sources) {
  const LoadResult loaded = LoadConfigSources(sources);
  Say(loaded.warnings);
  for (const std::string& error : loaded.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!loaded.config.has_value()) return kExitConfig;
  const absl::StatusOr<DaemonOptions> options = ToDaemonOptions(*loaded.config);
  return options.ok() ? 0 : FailWith(options.status());
}

int Run(ConfigSources sources) {
  Daemon::PrepareProcess();
  if (!ArmKillPoint(std::getenv("KVKEEP_KILL_AT"))) {
    return Fail(kExitConfig, "KVKEEP_KILL_AT (for tests) is not of the form name:count");
  }
  LoadResult loaded = LoadConfigSources(sources);
  Say(loaded.warnings);
  if (!loaded.config.has_value()) return FailWith(FirstError(loaded, sources.file));
  const absl::StatusOr<DaemonOptions> options = ToDaemonOptions(*loaded.config);
  if (!options.ok()) return FailWith(options.status());
  const std::string source = sources.file.empty() ? "built-in default" : sources.file;
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(*options, source, StartedConfig{std::move(sources), std::move(loaded)});
  if (!daemon.ok()) return FailWith(daemon.status());
  return (*daemon)->RunUntilSignal();
}

// Adds a flag for every path that can be set; --help shows them as one line.
void AddConfigFlags(CLI::App* app, ConfigSources* sources) {
  for (const std::string& path : SettablePaths()) {
    app->add_option_function<std::string>(
           "--" + path,
           [sources, path](const std::string& value) { sources->AddFlag(path, value); })
        ->group("");
  }
  app->footer(
      "Every key of the config is a flag, too: --g2.capacity 64GiB; and a variable of the\n"
      "environment: KVKEEP_G2_CAPACITY=64GiB. Flags override variables, and variables override\n"
      "the file. All keys: --print-config-reference.");
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  // Debian's Abseil looks for lock cycles at each of gRPC's locks, which is 2 % of the cost of a
  // put.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  CLI::App app(
      "kvkeepd: keeps the KV cache of LLM inference engines of this node in DRAM and NVMe");
  std::string config, check;
  bool print_default = false, print_reference = false;
  app.add_option("--config", config,
                 "YAML file; without it, small tiers under the user's own state directory");
  app.add_option("--check-config", check,
                 "Check a config file, print every error and exit (0 or 78)");
  app.add_flag("--print-default-config", print_default,
               "Print the default config with its documentation");
  app.add_flag("--print-config-reference", print_reference,
               "Print every key of the config as Markdown");
  app.set_version_flag("--version", "kvkeepd " KVKEEP_VERSION);
  kvkeep::ConfigSources sources;
  sources.user = kvkeep::UserEnvironment::OfProcess();
  sources.AddEnvironment(environ);
  kvkeep::AddConfigFlags(&app, &sources);
  CLI11_PARSE(app, argc, argv);
  if (print_default || print_reference) {
    const std::string text =
        print_default ? kvkeep::PrintDefaultConfig() : kvkeep::PrintConfigReference();
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  sources.file = check.empty() ? config : check;
  return check.empty() ? kvkeep::Run(std::move(sources)) : kvkeep::CheckConfig(sources);
}
