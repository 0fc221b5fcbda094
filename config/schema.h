// The schema: every key of the config file in one table.
//
// A key's default is what its field holds in Config{}, so nothing is written twice. Parsing,
// checking, printing, suggestions for misspelt keys and the tests all read this table; a new key is
// one line in it and one field in config.h.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <functional>
#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

// Path of the one list; its entries' keys are "g3.paths[].dir" and so on in the table.
inline constexpr char kG3PathsKey[] = "g3.paths";

struct ConfigKey {
  std::string path;    // "g2.capacity", "g3.paths[].dir"
  std::string doc;     // one line
  std::string limits;  // for people: "1MiB to 16TiB", "one of auto, memfd, mount"
  std::string wanted;  // "a size"
  // `entry`: index in the list, for keys of list entries. InvalidArgument names value and limits.
  std::function<absl::Status(absl::string_view text, Config& config, size_t entry)> set;
  // The value as YAML.
  std::function<std::string(Config& config, size_t entry)> get;

  absl::string_view section() const;  // "g2", "g3"
  absl::string_view name() const;     // last part: "capacity", "dir"
  bool in_list() const;
};

struct ConfigSection {
  std::string name;
  std::string doc;
};

// In the order in which they are printed; the keys of a section stand together.
const std::vector<ConfigSection>& ConfigSections();
const std::vector<ConfigKey>& ConfigKeys();
// Of the list itself, which has no value of its own.
absl::string_view G3PathsDoc();

}  // namespace kvkeep
