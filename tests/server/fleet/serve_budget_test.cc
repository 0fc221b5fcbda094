#include "server/fleet/serve_budget.h"

#include <catch2/catch.hpp>
#include <vector>

namespace kvkeep {
namespace {

constexpr MonotonicTime kNow = std::chrono::seconds(100);

TEST_CASE("a node serves so many reads at once, and so many bytes") {
  ServeBudget budget({.bytes_per_second = 1'000'000, .streams = 2, .pinned_bytes = 100});
  std::vector<ServeBudget::Share> shares;
  shares.push_back(budget.Take(60, kNow).value());
  CHECK_FALSE(budget.Take(60, kNow).has_value());
  shares.push_back(budget.Take(40, kNow).value());
  CHECK_FALSE(budget.Take(0, kNow).has_value());
  shares.clear();
  CHECK(budget.Take(1'000, kNow).has_value());  // one image may exceed the limit
}

TEST_CASE("a share that was moved is given back once") {
  ServeBudget budget({.bytes_per_second = 1'000'000, .streams = 1, .pinned_bytes = 100});
  {
    ServeBudget::Share share = budget.Take(1, kNow).value();
    const ServeBudget::Share moved = std::move(share);
    CHECK_FALSE(budget.Take(1, kNow).has_value());
  }
  CHECK(budget.Take(1, kNow).has_value());
}

TEST_CASE("beyond its rate a node refuses, until the debt is paid off") {
  ServeBudget budget({.bytes_per_second = 1'000, .pinned_bytes = 1'000'000});
  budget.Take(3'000, kNow)->Charge(kNow);  // a second's bytes were saved up
  CHECK_FALSE(budget.Take(1, kNow + std::chrono::milliseconds(1'900)).has_value());
  CHECK(budget.Take(1, kNow + std::chrono::milliseconds(2'100)).has_value());
}

TEST_CASE("what is not sent costs nothing") {
  ServeBudget budget({.bytes_per_second = 1'000, .pinned_bytes = 1'000'000});
  for (int i = 0; i < 100; ++i) CHECK(budget.Take(3'000, kNow).has_value());
}

TEST_CASE("a rate of 0 serves nothing") {
  ServeBudget budget({.bytes_per_second = 0, .pinned_bytes = 100});
  CHECK_FALSE(budget.serves());
  CHECK_FALSE(budget.Take(1, kNow).has_value());
}

}  // namespace
}  // namespace kvkeep
