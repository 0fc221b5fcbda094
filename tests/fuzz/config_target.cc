// Any text as a configuration: every error has the file's name, or the config prints as a text
// which loads to the same one.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include "config/config.h"
#include "config/schema.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr char kFile[] = "f.yaml";

// Returns whether it is "f.yaml:12:3: what" or "f.yaml: what", on one line.
bool IsWellFormed(absl::string_view error) {
  if (error.find('\n') != absl::string_view::npos || !absl::ConsumePrefix(&error, kFile)) {
    return false;
  }
  if (absl::StartsWith(error, ": ")) return error.size() > 2;
  const std::vector<absl::string_view> parts = absl::StrSplit(error, absl::MaxSplits(':', 3));
  uint32_t line = 0, column = 0;
  return parts.size() == 4 && parts[0].empty() && absl::SimpleAtoi(parts[1], &line) && line > 0 &&
         absl::SimpleAtoi(parts[2], &column) && column > 0 && parts[3].size() > 1;
}

void RunConfig(std::span<const uint8_t> input) {
  const LoadResult loaded = LoadConfig(InputReader(input).RestText(), kFile);
  KVKEEP_CHECK(loaded.config.has_value() == loaded.errors.empty());
  KVKEEP_CHECK(loaded.errors.size() <= kMaxConfigErrors + 1);
  for (const std::string& error : loaded.errors) KVKEEP_CHECK(IsWellFormed(error));
  if (!loaded.config.has_value()) return;
  const LoadResult again = LoadConfig(PrintConfig(*loaded.config), kFile);
  KVKEEP_CHECK(again.config.has_value() && *again.config == *loaded.config);
}

FuzzInput Seed(absl::string_view text) { return {text.begin(), text.end()}; }

std::vector<FuzzInput> ConfigSeeds() {
  std::vector<FuzzInput> seeds = {
      Seed(PrintConfig(Config())),
      Seed("{g2: {capacity: 1GiB}, g3: {paths: [{dir: /a, capacity: 2TiB, required: true}]}}"),
      Seed("tenants:\n  - name: a\n    unix: /run/a.sock\n    g2_share: 12.5%\n"
           "    allowed_uids: [1, 2]\n    socket_mode: 0666\n"),
      Seed("a: &x [*x]\n---\nb: !!binary |\n  aGk=\n"),
      Seed("%YAML 1.2\n\tg2: {}\n"),
  };
  for (const ConfigSection& section : ConfigSections()) {
    std::string text = absl::StrCat(section.name, ":\n");
    Config config;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section() != section.name || !key.list().empty()) continue;
      absl::StrAppend(&text, "  ", key.name(), ": ", key.get(config, 0), "\n");
    }
    seeds.push_back(Seed(text));
  }
  return seeds;
}

}  // namespace

const FuzzTarget kConfigTarget{.name = "config", .run = RunConfig, .seeds = ConfigSeeds};

}  // namespace kvkeep
