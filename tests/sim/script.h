// Script: which run of the simulation, in a file of a few lines that `kvkeep-sim --script` replays.
//
//   # anything
//   seed 77
//   policy arc           of eviction; lru if not said
//   nodes 3              of a fleet; one machine if not said
//   without delay stuck  left out of the world (random_world.h)
//   step 12              any number of them, in this order; what follows the number is a comment
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/simulation.h"

namespace kvkeep {

struct Script {
  uint64_t seed = 1;
  std::string policy = "lru";
  uint64_t nodes = 1;
  std::vector<std::string> without;
  std::vector<uint64_t> steps;

  SimulationOptions Options() const {
    return {.seed = seed, .only = steps, .without = without, .policy = policy, .nodes = nodes};
  }
};

// `what`: what happened in a step, for readers.
std::string FormatScript(const Script& script, const std::map<uint64_t, std::string>& what);
// InvalidArgument names the line.
absl::StatusOr<Script> ParseScript(const std::string& text);

// Returns the shortest script that can be found quickly and fails in the same way: leaves out parts
// of the world and steps while the failure stays. `failure` runs a script and returns its failure,
// or nothing.
Script Shrink(const Script& script, const std::function<std::string(const Script&)>& failure);

}  // namespace kvkeep
