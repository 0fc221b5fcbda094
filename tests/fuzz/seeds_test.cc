#include <catch2/catch.hpp>

#include "tests/fuzz/mixtures.h"

namespace kvkeep {
namespace {

TEST_CASE("nothing breaks over the seeds of what lies on media, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kMediaTarget, 20'000) > 20'000);
}

TEST_CASE("nothing breaks over the seeds of configurations, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kConfigTarget, 500) > 500);
}

TEST_CASE("nothing breaks over the seeds of what object storage answers, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kObjectsTarget, 20'000) > 20'000);
}

}  // namespace
}  // namespace kvkeep
