// ConfigSources: the sources of a daemon's config, each stronger than the one before: built-in
// defaults, the file, variables of the environment, flags of the command line.
//
// One rule makes the names of all variables and flags out of the schema's paths: g2.capacity is
// KVKEEP_G2_CAPACITY and --g2.capacity, with the value as the file has it. A list of maps has names
// as a whole, with YAML as its value: KVKEEP_G3_PATHS='[{dir: /nvme0, capacity: 1TiB}]'; keys of
// its entries have no names. Plain values.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/embedded.h"

namespace kvkeep {

// A value that is set outside of the file.
struct ConfigSetting {
  std::string path;    // of a key, or of a list of maps
  std::string value;   // as in the file
  std::string origin;  // for people: "flag --g2.capacity"
};

struct ConfigSources {
  std::string file;                     // empty: none, so the embedded default
  UserEnvironment user;                 // of the embedded default
  std::vector<ConfigSetting> settings;  // each overrides those before it
  std::vector<std::string> warnings;    // variables that look like keys and are none

  // Adds the settings in an environment, which has the form of `environ`: "NAME=value".
  void AddEnvironment(const char* const* environment);
  void AddFlag(const std::string& path, const std::string& value);
};

// Returns the paths that variables and flags can set: keys that are not of list entries, and lists.
std::vector<std::string> SettablePaths();
std::string VariableName(absl::string_view path);  // "KVKEEP_G2_CAPACITY"

// Errors are as LoadConfig's; those of variables and flags begin with their names.
LoadResult LoadConfigSources(const ConfigSources& sources);

}  // namespace kvkeep
