// ConfigSources: all that says what a daemon's config is, the stronger the later: built-in
// defaults, the file, variables of the environment, flags of the command line.
//
// One rule makes the names of all variables and flags out of the schema's paths: g2.capacity is
// KVKEEP_G2_CAPACITY and --g2.capacity, with the value as the file has it. A list of maps is named
// as a whole, its value is YAML: KVKEEP_G3_PATHS='[{dir: /nvme0, capacity: 1TiB}]'; keys of its
// entries have no names. Plain values.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/embedded.h"

namespace kvkeep {

// A value that is said outside of the file.
struct ConfigSetting {
  std::string path;    // of a key, or of a list of maps
  std::string value;   // as in the file
  std::string origin;  // for people: "flag --g2.capacity"
};

struct ConfigSources {
  std::string file;                     // empty: none, so the embedded default
  UserEnvironment user;                 // of the embedded default
  std::vector<ConfigSetting> settings;  // each above those before it
  std::vector<std::string> warnings;    // what looks as if it was meant for us

  // Adds what the environment says, as `environ` has it: "NAME=value".
  void AddEnvironment(const char* const* environment);
  void AddFlag(const std::string& path, const std::string& value);
};

// The paths that can be set so: those of keys that are not of list entries, and of lists.
std::vector<std::string> SettablePaths();
std::string VariableName(absl::string_view path);  // "KVKEEP_G2_CAPACITY"

// Errors are as LoadConfig's; those of variables and flags begin with their names.
LoadResult LoadConfigSources(const ConfigSources& sources);

}  // namespace kvkeep
