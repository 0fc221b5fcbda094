#include <catch2/catch.hpp>

#include "tests/fuzz/mixtures.h"

namespace kvkeep {
namespace {

TEST_CASE("nothing breaks over the seeds of Put and Get frames, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kWireTarget, 20'000) > 20'000);
}

TEST_CASE("nothing breaks over the seeds of what peers send, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kPeersTarget, 2'000) > 2'000);
}

TEST_CASE("nothing breaks over the seeds of gRPC's messages, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kRequestsTarget, 300) > 300);
}

TEST_CASE("nothing breaks over the seeds of the bulk door's clients, and mixtures of them") {
  CHECK(RunSeedsAndMixtures(kBulkTarget, 2'000) > 2'000);
}

}  // namespace
}  // namespace kvkeep
