// How often the model of a tier is estimated anew.
#include "tiers/policy/shadow_hazard.h"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

// Plays `requests` for one chain of 64 chunks, so far apart. Returns how many estimates that makes.
uint64_t EstimatesOf(int requests, milliseconds apart) {
  ShadowHazard tier(100'000, nullptr);
  tier.SetCapacity(1'000);
  std::array<ShadowHazard::Key, 64> chain;
  for (size_t i = 0; i < chain.size(); ++i) chain[i] = {.bits = i + 1};
  for (int i = 0; i < requests; ++i) tier.Request(chain, milliseconds(1'000) + i * apart);
  return tier.estimates();
}

constexpr int kRequestsPerEstimate = ShadowHazard::kTouchesPerEstimate / 64;

}  // namespace

TEST_CASE("requests that are apart have the model estimated by touches alone") {
  CHECK(EstimatesOf(10 * kRequestsPerEstimate, milliseconds(10)) == 10);
}

TEST_CASE("requests in a row do not have the model estimated for each thousand touches") {
  const uint64_t few = 1 + 10 * kRequestsPerEstimate / 50;  // one each 50 ms
  const uint64_t estimates = EstimatesOf(10 * kRequestsPerEstimate, milliseconds(1));
  CHECK(estimates > 0);
  CHECK(estimates <= few);
}

TEST_CASE("the model is estimated now and then where time stands still") {
  const int requests = 10 * kRequestsPerEstimate * int{ShadowHazard::kTimesTouches};
  CHECK(EstimatesOf(requests, milliseconds(0)) == 10);
}

}  // namespace kvkeep
