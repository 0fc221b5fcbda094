// Shares: how much each tenant may hold, and which gives first.
#include "tiers/store/shares.h"

#include <catch2/catch.hpp>
#include <set>

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kA(0), kB(1), kC(2);

// Returns which of `can_give` gives so that `taker` gets `more`: "a", "b", "c", "nobody" or "-".
std::string Giver(const Shares& shares, TenantId taker, uint64_t more,
                  const std::set<uint32_t>& can_give) {
  const auto giver =
      shares.ChooseDonor(taker, more, [&](TenantId t) { return can_give.contains(t.value()); });
  if (!giver.has_value()) return "-";
  return *giver == shares.nobody() ? "nobody"
                                   : std::string(1, static_cast<char>('a' + giver->value()));
}

}  // namespace

TEST_CASE("a share is the quota, or by weight a part of what the quotas leave") {
  Shares shares({{.quota = 300}, {.weight = 1}, {.weight = 3}});
  shares.SetCapacity(1000);
  CHECK(shares.share(kA) == 300);
  CHECK(shares.share(kB) == 175);
  CHECK(shares.share(kC) == 525);
  CHECK(shares.share(shares.nobody()) == 0);
}

TEST_CASE("quotas that are more than there is together count in proportion, and nothing is left") {
  Shares shares({{.quota = 300}, {.quota = 900}, {.weight = 1}});
  shares.SetCapacity(400);
  CHECK(shares.share(kA) == 100);
  CHECK(shares.share(kB) == 300);
  CHECK(shares.share(kC) == 0);
  CHECK(shares.quota(kB) == 900);  // it may still hold that
}

TEST_CASE("a quota is exact: the last unit fits, one more does not, and no sum overflows") {
  Shares shares({{.quota = 100}, {}});
  shares.SetCapacity(1000);
  shares.Take(kA, 90);
  CHECK(shares.FitsQuota(kA, 10));
  CHECK_FALSE(shares.FitsQuota(kA, 11));
  CHECK_FALSE(shares.FitsQuota(kA, UINT64_MAX));
  CHECK(shares.FitsQuota(kB, UINT64_MAX));
  shares.Give(kA, 1);
  CHECK(shares.FitsQuota(kA, 11));
}

TEST_CASE("who is most above its share gives, and nobody within its share does") {
  Shares shares({{.quota = 500}, {.weight = 1}, {.weight = 1}});
  shares.SetCapacity(1000);  // 500, 250, 250
  shares.Take(kA, 500);
  shares.Take(kB, 300);
  shares.Take(kC, 200);
  const std::set<uint32_t> all = {0, 1, 2};
  CHECK(Giver(shares, kC, 10, all) == "b");
  CHECK(Giver(shares, kA, 10, all) == "b");
  CHECK(Giver(shares, kA, 60, all) == "a");   // it would be further above than b is
  CHECK(Giver(shares, kC, 90, all) == "b");   // c would be at 290 then, b is at 300
  CHECK(Giver(shares, kC, 100, all) == "c");  // equal: the one that takes
  SECTION("who is above but has nothing that can go is passed over") {
    CHECK(Giver(shares, kC, 10, {0, 2}) == "c");
    CHECK(Giver(shares, kC, 10, {0}) == "-");  // a is within its share
  }
  SECTION("what no tenant can name goes before all else") {
    shares.Take(shares.nobody(), 1);
    CHECK(Giver(shares, kB, 100, {0, 1, 2, 3}) == "nobody");
  }
}

}  // namespace kvkeep::store_internal
