#include "tiers/store/namespace_meters.h"

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using store_internal::NamespaceMeters;

NamespaceSpec Spec(const std::string& model, uint32_t tokens = 16, uint32_t parts = 1) {
  return {.model = model, .tokens_per_chunk = tokens, .parts = parts};
}

}  // namespace

TEST_CASE("a chunk stands for its part of the tokens of its key") {
  NamespaceMeters meters(1);
  const NamespaceSpec whole = Spec("a", 256), quarter = Spec("b", 256, 4);
  meters.Open(whole.Digest(""), TenantId(0), "default", whole);
  meters.Open(quarter.Digest(""), TenantId(0), "default", quarter);
  meters.Served(whole.Digest(""), whole, 3);
  meters.Served(quarter.Digest(""), quarter, 3);
  const std::vector<NamespaceSnapshot> now = meters.snapshot();
  REQUIRE(now.size() == 3);
  CHECK(now[0].name->model == "a");
  CHECK(now[0].name->digest == whole.Digest("").ToHex());
  CHECK(now[0].tokens_served == 768);
  CHECK(now[1].tokens_served == 192);
  CHECK(now[2].name->digest == "other");
  CHECK(now[2].tokens_served == 0);
}

TEST_CASE("one tenant's many namespaces leave room for the others', and no token is lost") {
  NamespaceMeters meters(2);
  constexpr uint32_t kOpened = 2 * NamespaceMeters::kMost;
  for (uint32_t i = 0; i < kOpened; ++i) {
    const NamespaceSpec spec = Spec("m" + std::to_string(i), 1);
    meters.Open(spec.Digest("a"), TenantId(0), "a", spec);
    meters.Open(spec.Digest("a"), TenantId(0), "a", spec);  // again, by another session
    meters.Served(spec.Digest("a"), spec, 1);
  }
  const NamespaceSpec late = Spec("late", 1);
  meters.Open(late.Digest("b"), TenantId(1), "b", late);
  meters.Served(late.Digest("b"), late, 7);
  const std::vector<NamespaceSnapshot> now = meters.snapshot();
  REQUIRE(now.size() == NamespaceMeters::kMost / 2 + 2);
  CHECK(now[now.size() - 2].name->tenant == "b");
  CHECK(now[now.size() - 2].tokens_served == 7);
  double all = 0;
  for (const NamespaceSnapshot& one : now) all += one.tokens_served;
  CHECK(all == kOpened + 7);
  CHECK(now.back().tokens_served == kOpened - NamespaceMeters::kMost / 2);
}

TEST_CASE("a model's name is shown cut, and in printable ASCII") {
  NamespaceMeters meters(1);
  const NamespaceSpec spec = Spec("caf\xc3\xa9\n" + std::string(200, 'x'));
  meters.Open(spec.Digest(""), TenantId(0), "default", spec);
  CHECK(meters.snapshot()[0].name->model == "caf???" + std::string(58, 'x'));
}

TEST_CASE("what is read, and what is leased with its places, is served once, from where it lay") {
  StoreTester store;
  const auto tokens = [&store] { return store.store().snapshot().namespaces.at(0).tokens_served; };
  REQUIRE(store.Put(1, 5000) == "stored");
  REQUIRE(store.Put(2, 6000) == "stored");
  store.Settle();
  const double before = tokens();
  CHECK(before == 0);
  const NamespaceSpec spec = *store.store().FindNamespace(store.session, store.ns);
  const double chunk = static_cast<double>(spec.tokens_per_chunk) / spec.parts;
  REQUIRE(store.Get(1) == "hit");
  StoreCounters counters = store.counters();
  CHECK(counters.read_g2_hits == 1);
  CHECK(counters.served_g2_bytes == 5000);
  CHECK(tokens() == chunk);
  CHECK(store.Get(77) == "miss");
  CHECK(tokens() == chunk);

  store.FloodG2();
  const std::vector<ChunkKey> keys = {store.Id(1).key, store.Id(2).key};
  const PartId part(0);
  const LookupRequest request{
      .chunks = {.ns = store.ns, .keys = keys, .parts = std::span(&part, 1)},
      .lease_mode = LeaseMode::kLeadingRun,
      .client_request_id = 9,
      .want_places = true};
  const absl::StatusOr<LookupResult> leased = store.store().Lookup(store.session, request);
  REQUIRE(leased.ok());
  REQUIRE(leased->leased_keys == 2);
  counters = store.counters();
  CHECK(counters.read_g3_hits == 2);
  CHECK(counters.served_g3_bytes == 11'000);
  CHECK(tokens() == 3 * chunk);
  // Told again, and read by the lease: it is the same answer.
  REQUIRE(store.store().Lookup(store.session, request)->lease == leased->lease);
  store.RunAll();
  REQUIRE(store.Get(2, leased->lease) == "hit");
  CHECK(tokens() == 3 * chunk);
  CHECK(store.counters().read_g2_hits == 1);
  // A lookup hands out nothing.
  store.Lookup({1, 2});
  CHECK(tokens() == 3 * chunk);
}

}  // namespace kvkeep
