// The effective config: each value with its origin, a hash that tells configs apart, and the
// reference of all keys. All of it is made from the schema.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

struct EffectiveValue {
  std::string key;  // "g3.paths[0].dir"
  std::string value;
  std::string origin;  // as in LoadResult::origins; "default": set nowhere
  std::string default_value;
  bool live = false;  // a reload takes over a new value
};

// Returns the values of all keys, of every section and list entry. REQUIRES: loaded.config.
std::vector<EffectiveValue> EffectiveValues(const LoadResult& loaded);

// Returns 16 hexadecimal digits, the same for two configs with the same values, wherever they are
// set.
std::string ConfigHash(const Config& config);

// Returns all keys as Markdown: config/REFERENCE.md.
std::string PrintConfigReference();

}  // namespace kvkeep
