// The keys of what a verb printed with --json, for tests of what scripts rely on.
#pragma once

#include <set>
#include <string>

#include "tests/tools/cli_run.h"

namespace kvkeep::tools {

// The JSON's keys, "a.b" for those of maps and "a[].b" for those of the entries of lists.
inline void AddKeys(const nlohmann::json& value, const std::string& path,
                    std::set<std::string>& keys) {
  if (value.is_object()) {
    for (const auto& [key, below] : value.items()) {
      const std::string name = path.empty() ? key : path + "." + key;
      keys.insert(name);
      AddKeys(below, name, keys);
    }
  } else if (value.is_array() && !value.empty()) {
    AddKeys(value[0], path + "[]", keys);
  }
}

inline std::set<std::string> KeysOf(const CliResult& result) {
  INFO(result.err);
  REQUIRE((result.code == kOk || result.code == kFailed));
  std::set<std::string> keys;
  AddKeys(result.json(), "", keys);
  return keys;
}

}  // namespace kvkeep::tools
