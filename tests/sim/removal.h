// Removal: a part of what a seed draws that a run may leave out, by its name. A table lists
// the parts that can be left out of a world or a fleet.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

template <typename Drawn>
struct Removal {
  const char* name;
  void (*apply)(Drawn& drawn);
};

// REQUIRES: the table has each of the names.
template <typename Drawn>
void LeaveOut(std::span<const Removal<Drawn>> table, const std::vector<std::string>& names,
              Drawn& drawn) {
  for (const std::string& name : names) {
    const auto removal = std::find_if(table.begin(), table.end(),
                                      [&](const Removal<Drawn>& one) { return name == one.name; });
    KVKEEP_CHECK(removal != table.end());
    removal->apply(drawn);
  }
}

template <typename Drawn>
std::vector<std::string> NamesOf(std::span<const Removal<Drawn>> table) {
  std::vector<std::string> names;
  for (const Removal<Drawn>& removal : table) names.emplace_back(removal.name);
  return names;
}

}  // namespace kvkeep
