// The keys of a JSON value, for tests of what scripts rely on.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace kvkeep::tools {

// Adds "a.b" for the keys of maps and "a[].b" for those of the entries of lists.
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

inline std::set<std::string> KeysOfJson(const nlohmann::json& value) {
  std::set<std::string> keys;
  AddKeys(value, "", keys);
  return keys;
}

}  // namespace kvkeep::tools
