#include "config/effective.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <span>

#include "config/change.h"
#include "config/schema.h"
#include "config/sources.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

constexpr char kReferenceHead[] =
    "# Configuration reference\n\n"
    "Made from the schema by `kvkeepd --print-config-reference`; a test fails when it is stale.\n\n"
    "One YAML file (`kvkeepd --config FILE`), every key optional. Environment variables override\n"
    "the file, and flags override both, with names by one rule: `g2.capacity` is\n"
    "`KVKEEP_G2_CAPACITY` and `--g2.capacity`. Keys of list entries (`tenants[]`, `g3.paths[]`)\n"
    "have neither; the list as a whole has both, with YAML as its value:\n"
    "`KVKEEP_G3_PATHS='[{dir: /nvme0, capacity: 1TiB}]'`. `kvkeep config show --effective`\n"
    "prints each value with its source.\n\n"
    "Sizes: `64GiB`, `512MiB`, `4096`; `GB` is decimal. Counts: `4M`, `64k`, `64Ki`. Times:\n"
    "`250ms`, `15s`, `1m`. Shares: `25%`.\n\n"
    "**live**: `systemctl reload kvkeepd` (SIGHUP) or `kvkeep config reload` takes over a new\n"
    "value. A reload that finds another value of any other key is refused as a whole, and names\n"
    "the key.\n";

// Returns `text` for a cell of a table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string Row(const ConfigKey& key) {
  Config defaults;
  const ConfigList* list = FindConfigList(key.list());
  std::string shown;
  if (!key.when_missing.empty()) {
    shown = "required";
  } else {
    if (list != nullptr) list->resize(defaults, 1);
    shown = absl::StrCat("`", key.get(defaults, 0), "`");
  }
  const bool live = ChangeOf(key.path) == ConfigChange::kLive;
  return absl::StrCat("| `", key.path, "` | ", Cell(shown), " | ", Cell(key.limits), " | ",
                      live ? "live" : "", " | ", Cell(key.doc), " |\n");
}

}  // namespace

std::vector<EffectiveValue> EffectiveValues(const LoadResult& loaded) {
  KVKEEP_CHECK(loaded.config.has_value());
  Config config = *loaded.config;
  Config pristine;  // the defaults of a daemon without any file
  std::vector<EffectiveValue> values;
  for (const ConfigKey& key : ConfigKeys()) {
    const ConfigList* list = FindConfigList(key.list());
    const size_t entries = list == nullptr ? 1 : list->size(config);
    const bool list_said = list != nullptr && loaded.origins.contains(list->path);
    Config defaults;
    if (list != nullptr) list->resize(defaults, 1);
    for (size_t entry = 0; entry < entries; ++entry) {
      EffectiveValue value{.key = key.shown_path(entry),
                           .value = key.get(config, entry),
                           .origin = "default",
                           .live = ChangeOf(key.path) == ConfigChange::kLive};
      if (key.when_missing.empty()) value.default_value = key.get(defaults, 0);
      const auto said = loaded.origins.find(value.key);
      const bool known = list == nullptr || entry < list->size(pristine);
      if (said != loaded.origins.end()) {
        value.origin = said->second;
      } else if (!list_said && (!known || value.value != key.get(pristine, entry))) {
        value.origin = "built-in default";  // without any file
      }
      values.push_back(std::move(value));
    }
  }
  return values;
}

std::string ConfigHash(const Config& config) {
  const std::string text = PrintConfig(config);
  return absl::StrCat(absl::Hex(Xxh3(std::as_bytes(std::span(text))), absl::kZeroPad16));
}

std::string PrintConfigReference() {
  std::string out = kReferenceHead;
  for (const ConfigSection& section : ConfigSections()) {
    absl::StrAppend(&out, "\n## ", section.name, "\n\n", section.doc, "\n\n",
                    "| key | default | takes | | what |\n|---|---|---|---|---|\n");
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section() == section.name) absl::StrAppend(&out, Row(key));
    }
  }
  return out;
}

}  // namespace kvkeep
