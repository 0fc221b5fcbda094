// kvkeepd: the daemon's command line. All that it does is in daemon.h.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "config/config.h"
#include "config/embedded.h"
#include "server/daemon.h"
#include "server/kill_point.h"
#include "server/options.h"
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

// The config file's options, or those a user gets without one.
absl::StatusOr<DaemonOptions> LoadOptions(const std::string& file) {
  if (file.empty()) {
    const absl::StatusOr<Config> config = EmbeddedDefaultConfig(UserEnvironment::OfProcess());
    if (!config.ok()) return absl::InvalidArgumentError(config.status().message());
    return ToDaemonOptions(*config);
  }
  const LoadResult loaded = LoadConfigFile(file);
  if (loaded.config.has_value()) return ToDaemonOptions(*loaded.config);
  std::string line = loaded.errors.front();
  if (loaded.errors.size() > 1) {
    absl::StrAppend(&line, " (", loaded.errors.size(), " errors: see kvkeepd --check-config ", file,
                    ")");
  }
  return absl::InvalidArgumentError(line);
}

int CheckConfig(const std::string& file) {
  const LoadResult loaded = LoadConfigFile(file);
  for (const std::string& error : loaded.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!loaded.config.has_value()) return kExitConfig;
  const absl::StatusOr<DaemonOptions> options = ToDaemonOptions(*loaded.config);
  return options.ok() ? 0 : FailWith(options.status());
}

int Run(const std::string& file) {
  Daemon::PrepareProcess();
  if (!ArmKillPoint(std::getenv("KVKEEP_KILL_AT"))) {
    return Fail(kExitConfig, "KVKEEP_KILL_AT (for tests) is not of the form name:count");
  }
  const absl::StatusOr<DaemonOptions> options = LoadOptions(file);
  if (!options.ok()) return FailWith(options.status());
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(*options, file.empty() ? "built-in default" : file);
  if (!daemon.ok()) return FailWith(daemon.status());
  return (*daemon)->RunUntilSignal();
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  CLI::App app(
      "kvkeepd: keeps the KV cache of LLM inference engines of this node in DRAM and NVMe");
  std::string config, check;
  bool print_default = false;
  app.add_option("--config", config,
                 "YAML file; without it, small tiers under the user's own state directory");
  app.add_option("--check-config", check,
                 "Check a config file, print every error and exit (0 or 78)");
  app.add_flag("--print-default-config", print_default,
               "Print the default config with its documentation");
  app.set_version_flag("--version", "kvkeepd " KVKEEP_VERSION);
  CLI11_PARSE(app, argc, argv);
  if (print_default) {
    std::fputs(kvkeep::PrintDefaultConfig().c_str(), stdout);
    return 0;
  }
  return check.empty() ? kvkeep::Run(config) : kvkeep::CheckConfig(check);
}
