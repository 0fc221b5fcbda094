// Setup: a daemon's config as `kvkeep init` chooses it from a machine's facts. Each value has its
// reason, which becomes a comment of the file. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/kvkeep/setup_facts.h"

namespace kvkeep::tools {

struct Setup {
  std::string file;                      // where the config belongs
  std::string yaml;                      // its text: every value with its reason
  uint64_t g2_bytes = 0, g3_bytes = 0;   // capacities in it; no G3: 0
  std::vector<std::string> directories;  // to be made, mode 0700, before the daemon starts
  std::vector<std::string> notes;        // for the person, as "no local drive: no G3"
};

Setup ChooseSetup(const SetupFacts& facts);

// Returns what a person pastes to have an engine of these use the daemon: a line for each.
std::vector<std::string> EngineHints(const std::vector<FoundEngine>& engines);

}  // namespace kvkeep::tools
