// Finds conflicts between values that are each right by themselves.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

struct Conflict {
  // Paths of the keys it is between, "g3.paths[1].dir"; the one to blame first.
  std::vector<std::string> keys;
  std::string message;
};

std::vector<Conflict> FindConflicts(const Config& config);

// One more, for whoever looks for them.
void AddConflict(std::vector<Conflict>& conflicts, std::vector<std::string> keys,
                 absl::string_view message);

// Adds the conflicts between the keys that say who comes in over TCP (access_check.cc).
void FindAccessConflicts(const Config& config, std::vector<Conflict>& conflicts);

}  // namespace kvkeep
