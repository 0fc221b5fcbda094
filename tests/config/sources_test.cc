// Precedence of the sources: defaults, the file, the environment, flags.
#include "config/sources.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "config/effective.h"
#include "config/schema.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

class Files {
 public:
  ConfigSources With(const std::string& text) const {
    std::ofstream(dir_ / "kv.yaml") << text;
    return {.file = dir_ / "kv.yaml"};
  }
  // Without the directory.
  std::string Short(std::string text) const {
    const size_t at = text.find(dir_.path());
    return at == std::string::npos ? text : text.replace(at, dir_.path().size() + 1, "");
  }

 private:
  const ScratchDir dir_;
};

ConfigSources Environment(ConfigSources sources, std::vector<const char*> entries) {
  entries.push_back(nullptr);
  sources.AddEnvironment(entries.data());
  return sources;
}

Config Loaded(const ConfigSources& sources) {
  const LoadResult result = LoadConfigSources(sources);
  INFO((result.errors.empty() ? "" : result.errors[0]));
  REQUIRE(result.config.has_value());
  return *result.config;
}

EffectiveValue ValueOf(const ConfigSources& sources, const std::string& key) {
  for (const EffectiveValue& value : EffectiveValues(LoadConfigSources(sources))) {
    if (value.key == key) return value;
  }
  FAIL("no value of " << key);
  return {};
}

}  // namespace

TEST_CASE("a flag stands above a variable, that above the file, that above the default") {
  const Files files;
  ConfigSources sources = files.With("log: {level: warn}\n\ng2: {capacity: 1GiB, policy: lru}\n");
  CHECK(Loaded(sources).g2.capacity_bytes == kGiB);
  sources = Environment(sources, {"KVKEEP_G2_CAPACITY=2GiB", "KVKEEP_DRAIN_TIMEOUT=3s", "HOME=/"});
  CHECK(Loaded(sources).g2.capacity_bytes == 2 * kGiB);
  CHECK(Loaded(sources).drain.timeout == std::chrono::seconds(3));
  sources.AddFlag("g2.capacity", "3GiB");
  const Config config = Loaded(sources);
  CHECK(config.g2.capacity_bytes == 3 * kGiB);
  CHECK(config.g2.policy == "lru");
  CHECK(config.log.level == LogLevelChoice::kWarn);

  CHECK(ValueOf(sources, "g2.capacity").origin == "flag --g2.capacity");
  CHECK(ValueOf(sources, "g2.capacity").default_value == "64GiB");
  CHECK(ValueOf(sources, "drain.timeout").origin == "environment KVKEEP_DRAIN_TIMEOUT");
  CHECK(files.Short(ValueOf(sources, "g2.policy").origin) == "kv.yaml:3");
  CHECK(files.Short(ValueOf(sources, "log.level").origin) == "kv.yaml:1");
  CHECK(ValueOf(sources, "g3.io").origin == "default");
  CHECK(ValueOf(sources, "log.level").live);
  CHECK_FALSE(ValueOf(sources, "g2.policy").live);
}

TEST_CASE("every key outside of lists, and every list, has one variable of its own") {
  std::set<std::string> variables;
  const std::vector<std::string> paths = SettablePaths();
  for (const std::string& path : paths) {
    INFO(path);
    CHECK(variables.insert(VariableName(path)).second);
    CHECK_FALSE(absl::StrContains(path, "[]"));
  }
  CHECK(variables.count("KVKEEP_G3_SCRUB_BYTES_PER_SECOND") == 1);
  CHECK(variables.count("KVKEEP_G3_PATHS") == 1);
  CHECK(variables.count("KVKEEP_TENANTS") == 1);
  for (const ConfigKey& key : ConfigKeys()) {
    if (!key.list().empty()) continue;
    INFO(key.path);
    CHECK(std::count(paths.begin(), paths.end(), key.path) == 1);
  }
  // The tools' variables stand for no key.
  for (const char* taken :
       {"KVKEEP_ENDPOINT", "KVKEEP_ADMIN", "KVKEEP_CACERT", "KVKEEP_CERT", "KVKEEP_KEY",
        "KVKEEP_SERVER_NAME", "KVKEEP_TOKEN_FILE", "KVKEEP_KILL_AT"}) {
    CHECK(variables.count(taken) == 0);
  }
}

TEST_CASE("a list as a whole may come from a variable, and replaces the file's") {
  const Files files;
  ConfigSources sources = files.With(
      "g3: {paths: [{dir: /a}, {dir: /b, required: true}]}\n"
      "listen: {allowed_uids: [1]}\n");
  sources = Environment(sources, {"KVKEEP_G3_PATHS=[{dir: /c, capacity: 2TiB}]",
                                  "KVKEEP_LISTEN_ALLOWED_UIDS=[5, 6]"});
  const Config config = Loaded(sources);
  REQUIRE(config.g3.paths.size() == 1);
  CHECK(config.g3.paths[0].dir == "/c");
  CHECK(config.listen.access.allowed_uids == std::vector<uint32_t>{5, 6});
  CHECK(ValueOf(sources, "g3.paths[0].dir").origin == "environment KVKEEP_G3_PATHS");
  CHECK(ValueOf(sources, "g3.paths[0].required").origin == "default");
}

TEST_CASE("what a variable or flag says wrong is told with its name, beside the file's errors") {
  const Files files;
  ConfigSources sources = files.With("g2: {capacity: 64G}\n");
  sources = Environment(sources, {"KVKEEP_LOG_LEVEL=loud", "KVKEEP_TENANTS=[{name: a}",
                                  "KVKEEP_G3_PATHS=[{dri: /x}]"});
  sources.AddFlag("drain.timeout", "soon");
  sources.AddFlag("g3.paths[].dir", "/x");
  const LoadResult result = LoadConfigSources(sources);
  CHECK_FALSE(result.config.has_value());
  REQUIRE(result.errors.size() == 7);
  CHECK(absl::StartsWith(files.Short(result.errors[0]), "kv.yaml:1:16: g2.capacity: '64G'"));
  CHECK(absl::StartsWith(result.errors[1], "environment KVKEEP_LOG_LEVEL: log.level: 'loud'"));
  CHECK(absl::StartsWith(result.errors[2], "environment KVKEEP_TENANTS: not valid YAML"));
  CHECK(absl::StartsWith(result.errors[3], "environment KVKEEP_G3_PATHS: unknown key"));
  CHECK(absl::StartsWith(result.errors[4], "environment KVKEEP_G3_PATHS: g3.paths[0].dir: is mis"));
  CHECK(absl::StartsWith(result.errors[5], "flag --drain.timeout: drain.timeout: 'soon'"));
  CHECK(absl::StartsWith(result.errors[6], "flag --g3.paths[].dir: no key is called"));
}

TEST_CASE("a conflict is told where the value to blame was said") {
  const Files files;
  ConfigSources sources = files.With("listen: {admin: /a.sock}\n");
  sources = Environment(sources, {"KVKEEP_LISTEN_ADMIN=/run/kvkeep/kvkeep.sock"});
  const LoadResult result = LoadConfigSources(sources);
  REQUIRE(result.errors.size() == 1);
  CHECK(absl::StartsWith(result.errors[0],
                         "environment KVKEEP_LISTEN_ADMIN: listen.admin: is the same socket"));
}

TEST_CASE("a variable that was meant for a key, but is none's, is warned of") {
  const ConfigSources sources =
      Environment({}, {"KVKEEP_G2_CAPACTY=1GiB", "KVKEEP_METRICS_PORT_9464_TCP_PROTO=tcp",
                       "KVKEEP_ENDPOINT=x", "KVKEEPD_DUMPABLE=1", "NOT_KVKEEP_G2_CAPACITY=1"});
  CHECK(sources.settings.empty());
  REQUIRE(sources.warnings.size() == 2);
  CHECK(sources.warnings[0] ==
        "environment KVKEEP_G2_CAPACTY: is no key's, did you mean KVKEEP_G2_CAPACITY?");
  CHECK(sources.warnings[1] == "environment KVKEEP_METRICS_PORT_9464_TCP_PROTO: is no key's");
}

TEST_CASE("without a file the embedded default is what variables and flags change") {
  ConfigSources sources{.user = {.home = "/var/u"}};
  CHECK(ValueOf(sources, "state.dir").value == "/var/u/.local/state/kvkeep");
  CHECK(ValueOf(sources, "state.dir").origin == "built-in default");
  CHECK(ValueOf(sources, "g3.paths[0].capacity").origin == "built-in default");
  CHECK(ValueOf(sources, "g3.paths[0].required").origin == "default");
  sources.AddFlag("g2.capacity", "2GiB");
  CHECK(Loaded(sources).g2.capacity_bytes == 2 * kGiB);
  CHECK(Loaded(sources).state.dir == "/var/u/.local/state/kvkeep");
  CHECK(LoadConfigSources({.user = {}}).errors.size() == 1);
  CHECK(LoadConfigSources({.file = "/nonexistent"}).errors.size() == 1);
}

TEST_CASE("the hash is of what a config says, not of where") {
  const Files files;
  ConfigSources in_file = files.With("log: {level: debug}\n");
  const std::string hash = ConfigHash(Loaded(in_file));
  ConfigSources by_flag = files.With("# nothing\n");
  CHECK(ConfigHash(Loaded(by_flag)) != hash);
  by_flag.AddFlag("log.level", "debug");
  CHECK(ConfigHash(Loaded(by_flag)) == hash);
}

}  // namespace kvkeep
