// The schema: every key of the config file in one table.
//
// A key's default is the value of its field in Config{}, so nothing is written twice. Parsing,
// checking, printing, suggestions for misspelt keys and the tests all read this table; a new key
// takes one line in it, and the steps that config/README.md lists.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <functional>
#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

// The form of a key's value in the file.
enum class ConfigShape { kScalar, kList };

struct ConfigKey {
  std::string path;    // "g2.capacity", "g3.paths[].dir"
  std::string doc;     // one line
  std::string limits;  // for people: "1MiB to 16TiB", "one of auto, memfd, mount"
  std::string wanted;  // "a size"
  // `entry`: index in the list, for keys of list entries. InvalidArgument names value and limits.
  std::function<absl::Status(absl::string_view text, Config& config, size_t entry)> set;
  // Returns the value as YAML, which `set` takes too.
  std::function<std::string(Config& config, size_t entry)> get;
  ConfigShape shape = ConfigShape::kScalar;
  std::string when_missing = "";  // of a required key of list entries: what to do

  absl::string_view section() const;           // "g2", "g3", "tenants"
  absl::string_view list() const;              // "g3.paths" for a key of its entries, else empty
  absl::string_view name() const;              // last part: "capacity", "dir"
  std::string shown_path(size_t entry) const;  // "g3.paths[1].dir"
};

// A list of maps. Its path is that of a section ("tenants") or lies in one ("g3.paths"); its
// entries' keys are "g3.paths[].dir" and so on in the table.
struct ConfigList {
  std::string path;
  std::string doc;
  std::string example_entry;  // for messages: "{dir: /nvme0/kvkeep, capacity: 1TiB}"
  std::string entry_shape;    // for messages: "{dir: ..., capacity: ...}"
  size_t max_entries = 0;
  size_t (*size)(const Config& config);
  void (*resize)(Config& config, size_t entries);  // all of them new
  void (*set_example)(Config& config);  // one entry, for the documentation of an empty list
};

struct ConfigSection {
  std::string name;
  std::string doc;
};

// Return the tables in the order in which they are printed; the keys of a section stand together.
const std::vector<ConfigSection>& ConfigSections();
const std::vector<ConfigKey>& ConfigKeys();
const std::vector<ConfigList>& ConfigLists();
const ConfigList* FindConfigList(absl::string_view path);  // null: no list has it

}  // namespace kvkeep
