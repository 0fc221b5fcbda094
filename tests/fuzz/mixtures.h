// Inputs of a fuzz target that every build runs: its seeds, and damaged mixtures of them.
#pragma once

#include "tests/fakes/seeded_random.h"
#include "tests/fuzz/target.h"

namespace kvkeep {

// Returns how many inputs were run, if none broke a promise.
inline size_t RunSeedsAndMixtures(const FuzzTarget& target, size_t mixtures) {
  const std::vector<FuzzInput> seeds = target.seeds();
  for (const FuzzInput& seed : seeds) target.run(seed);
  target.run({});
  SeededRandom random(7);
  for (size_t round = 0; round < mixtures; ++round) {
    FuzzInput input = seeds[random.Below(seeds.size())];
    const FuzzInput& other = seeds[random.Below(seeds.size())];
    if (random.Chance(0.3)) {
      input.insert(input.begin() + static_cast<ptrdiff_t>(random.Below(input.size())),
                   other.begin(), other.end());
    }
    if (random.Chance(0.3)) input.resize(random.Below(input.size()));
    for (uint64_t i = random.Below(6); i > 0 && !input.empty(); --i) {
      input[random.Below(input.size())] = static_cast<uint8_t>(random.Below(256));
    }
    target.run(input);
  }
  return seeds.size() + 1 + mixtures;
}

}  // namespace kvkeep
