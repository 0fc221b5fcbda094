// What a config comes to: each value with where it was said, a hash that tells configs apart, and
// the reference of all keys. All made from the schema.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

struct EffectiveValue {
  std::string key;  // "g3.paths[0].dir"
  std::string value;
  std::string origin;  // as LoadResult::origins; "default": said nowhere
  std::string default_value;
  bool live = false;  // a reload takes another one over
};

// Every key of every section and list entry. REQUIRES: loaded.config.
std::vector<EffectiveValue> EffectiveValues(const LoadResult& loaded);

// The same for two configs that say the same, wherever they say it; 16 hexadecimal
// digits.
std::string ConfigHash(const Config& config);

// Every key as Markdown: config/REFERENCE.md.
std::string PrintConfigReference();

}  // namespace kvkeep
