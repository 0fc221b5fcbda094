// Finds conflicts between values that are each valid by themselves.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep {

struct Conflict {
  // Paths of the keys in conflict, "g3.paths[1].dir"; the key to blame first.
  std::vector<std::string> keys;
  std::string message;
};

std::vector<Conflict> FindConflicts(const Config& config);

// Adds a conflict. For the checks.
void AddConflict(std::vector<Conflict>& conflicts, std::vector<std::string> keys,
                 absl::string_view message);

// Adds the conflicts between the keys for access over TCP (access_check.cc).
void FindAccessConflicts(const Config& config, std::vector<Conflict>& conflicts);

}  // namespace kvkeep
