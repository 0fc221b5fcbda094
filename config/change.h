// Says for every key of the schema whether a running daemon takes over a new value, and compares
// two configs key by key.
#pragma once

#include <absl/strings/string_view.h>

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

enum class ConfigChange {
  kLive,     // a reload takes it over
  kRestart,  // a reload that finds another value is refused
};

// Returns the change of the key with this path in the schema ("tenants[].g3_quota"); none if the
// key is not classified.
std::optional<ConfigChange> ChangeOf(absl::string_view path);

// Returns every path that is classified, in no order: as many as the schema has keys.
std::vector<std::string> ClassifiedPaths();

struct ConfigDifference {
  std::string key;  // "tenants[0].g3_quota"; of a list with more or fewer entries: its path
  std::string before, after;
  ConfigChange change = ConfigChange::kRestart;
};

// Returns the differences in the order of the schema. Entries of lists are compared by their place:
// a list with another number of entries is one difference.
std::vector<ConfigDifference> DiffConfigs(const Config& before, const Config& after);

}  // namespace kvkeep
