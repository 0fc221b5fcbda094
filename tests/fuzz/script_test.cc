#include "tests/fuzz/script.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

TEST_CASE("the seeds of the fuzz target reach every part of the protocol, and nothing breaks") {
  ScriptResult sum;
  for (const std::vector<uint8_t>& seed : SeedScripts()) {
    const ScriptResult result = RunScript(seed);
    CHECK(result.requests >= 2);
    sum.errors += result.errors;
    sum.broken += result.broken;
    sum.stored += result.stored;
    sum.in_parts += result.in_parts;
    sum.stalled += result.stalled;
    sum.checked += result.checked;
    sum.copied += result.copied;
    sum.descriptors += result.descriptors;
  }
  CHECK(sum.errors > 5);
  CHECK(sum.broken == 3);  // too long, a short packet, cut in the middle
  CHECK(sum.stored > 10);
  CHECK(sum.in_parts == 3);  // the filled ones; the others ended otherwise
  CHECK(sum.stalled == 1);
  CHECK(sum.checked > 5);
  CHECK(sum.copied > 3);
  CHECK(sum.descriptors > 40);
}

TEST_CASE("damaged and mixed seeds break nothing") {
  const std::vector<std::vector<uint8_t>> seeds = SeedScripts();
  SeededRandom random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> script = seeds[random.Below(seeds.size())];
    const std::vector<uint8_t>& other = seeds[random.Below(seeds.size())];
    script.insert(script.begin() + static_cast<ptrdiff_t>(random.Below(script.size())),
                  other.begin(), other.end());
    for (uint64_t i = random.Below(6); i > 0; --i) {
      script[random.Below(script.size())] = static_cast<uint8_t>(random.Below(256));
    }
    INFO("round " << round);
    RunScript(script);
  }
}

}  // namespace
}  // namespace kvkeep
