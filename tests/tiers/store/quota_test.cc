// Quotas of G3: exact, over restarts, and paid for by the tenant's own chunks.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// "", "blue" and "green" with a segment of 64 blocks each, over one device of 512 blocks.
WorldOptions ThreeTenants(uint64_t blue_quota_blocks, uint64_t green_quota_blocks = 0) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 192;
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 192 * kBlockBytes;
  options.store.tenants = {
      {.name = "", .g2_segments = 1},
      {.name = "blue", .g2_segments = 1, .g3_quota_bytes = blue_quota_blocks * kBlockBytes},
      {.name = "green", .g2_segments = 1, .g3_quota_bytes = green_quota_blocks * kBlockBytes}};
  return options;
}

// A client of a tenant. Chunks of 4096 bytes take two blocks, with their header page.
class Client {
 public:
  Client(World* world, uint32_t tenant) : world_(*world), tenant_(tenant) { Connect(); }

  void Connect() {
    session_ = store().OpenSession({.client_name = "t", .tenant = TenantId(tenant_)}).value();
    ns_ = store().OpenNamespace(session_, {.model = "test", .tokens_per_chunk = 16}).value();
  }
  // Returns the answer of a durable put of two blocks, or more: "ok" or a status code's name.
  std::string Put(uint64_t name, size_t bytes = 4096) {
    absl::StatusOr<ReserveResult> result =
        store().Reserve(session_, {.ns = ns_,
                                   .key = MakeKey(name),
                                   .shape = {.payload_bytes = static_cast<uint32_t>(bytes)},
                                   .durable = true});
    REQUIRE(result.ok());
    REQUIRE(result->outcome == ReserveResult::Outcome::kReserved);
    result->reservation.Append(MakePayload(name, 1, bytes));
    REQUIRE(result->reservation.Seal({}).ok());
    std::string answer = "waiting";
    store().WhenDurable({ns_, MakeKey(name), PartId(0)}, [&answer](absl::Status status) {
      answer = status.ok() ? "ok" : std::string(absl::StatusCodeToString(status.code()));
    });
    world_.Settle();
    return answer;
  }
  void PutAll(uint64_t first, uint64_t end) {
    for (uint64_t name = first; name < end; ++name) REQUIRE(Put(name) == "ok");
  }
  // Returns how many of [first, end) are in G3.
  uint64_t InG3(uint64_t first, uint64_t end) {
    std::vector<ChunkKey> keys;
    for (uint64_t name = first; name < end; ++name) keys.push_back(MakeKey(name));
    const std::vector<PartId> parts = {PartId(0)};
    const LookupResult found = store().Lookup(session_, {.chunks = {ns_, keys, parts}}).value();
    return static_cast<uint64_t>(std::count(found.g3_parts.begin(), found.g3_parts.end(), 1u));
  }
  void Touch(uint64_t name) {
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const std::vector<PartId> parts = {PartId(0)};
    REQUIRE(store().Touch(session_, {ns_, keys, parts}).ok());
  }
  TenantSnapshot Snapshot() { return store().snapshot().tenants[tenant_]; }
  uint64_t UsedBlocks() { return Snapshot().g3_used_bytes / kBlockBytes; }

 private:
  Store& store() { return world_.store(); }
  World& world_;
  const uint32_t tenant_;
  SessionToken session_;
  NamespaceDigest ns_;
};

}  // namespace

TEST_CASE("a tenant at its quota of G3 loses its own oldest, and holds no block more") {
  World world(ThreeTenants(100));
  world.Start();
  Client red(&world, 0), blue(&world, 1);
  red.PutAll(0, 20);
  blue.PutAll(0, 50);
  CHECK(blue.UsedBlocks() == 100);
  blue.Touch(0);
  blue.PutAll(50, 90);
  CHECK(blue.UsedBlocks() == 100);
  CHECK(blue.InG3(50, 90) == 40);
  CHECK(blue.InG3(0, 1) == 1);   // used lately
  CHECK(blue.InG3(1, 41) == 0);  // the oldest
  CHECK(blue.InG3(41, 50) == 9);
  CHECK(red.InG3(0, 20) == 20);
  CHECK(blue.Snapshot().counters.g3_quota_evictions == 40);
  CHECK(red.Snapshot().counters.g3_evictions == 0);
  world.store().CheckInvariants();
}

TEST_CASE("a quota counts what lies on all devices, and makes room on whichever has some") {
  WorldOptions options = ThreeTenants(100);
  options.device_blocks = {200, 200};
  World world(options);
  world.Start();
  Client blue(&world, 1);
  for (uint64_t name = 0; name < 120; ++name) {
    REQUIRE(blue.Put(name) == "ok");
    CHECK(blue.UsedBlocks() == std::min<uint64_t>(2 * (name + 1), 100));
  }
  const auto devices = world.store().snapshot().devices;
  CHECK(devices[0].chunks > 10);
  CHECK(devices[1].chunks > 10);
  world.store().CheckInvariants();
}

TEST_CASE("a chunk larger than the quota stays out of G3, says so, and takes nothing with it") {
  World world(ThreeTenants(20));
  world.Start();
  Client blue(&world, 1);
  blue.PutAll(0, 10);
  CHECK(blue.Put(100, 20 * kBlockBytes) == "RESOURCE_EXHAUSTED");
  CHECK(blue.InG3(0, 10) == 10);
  CHECK(blue.InG3(100, 101) == 0);
  CHECK(blue.Snapshot().counters.g3_quota_refusals > 0);
  CHECK(blue.Put(101, 19 * kBlockBytes) == "ok");  // with its header all of the quota
  CHECK(blue.UsedBlocks() == 20);
}

TEST_CASE("a flood takes nothing from a tenant within its share, with a quota or without") {
  // The 512 blocks hold a label and a reserve; green may count on 200, red and blue on half of the
  // rest.
  World world(ThreeTenants(0, 200));
  world.Start();
  Client red(&world, 0), blue(&world, 1), green(&world, 2);
  red.PutAll(0, 50);
  green.PutAll(0, 100);
  blue.PutAll(0, 1000);
  CHECK(red.InG3(0, 50) == 50);
  CHECK(green.InG3(0, 100) == 100);
  CHECK(red.Snapshot().counters.g3_pushed_out == 0);
  CHECK(green.Snapshot().counters.g3_pushed_out == 0);
  // Blue may use what the others do not, as long as they do not.
  const uint64_t most = blue.UsedBlocks();
  CHECK(most * kBlockBytes > blue.Snapshot().g3_share_bytes);
  SECTION("and gives back what it has above its share to who asks for it") {
    red.PutAll(50, 60);
    CHECK(red.InG3(0, 60) == 60);
    CHECK(blue.UsedBlocks() < most);
    CHECK(blue.Snapshot().counters.g3_pushed_out > 0);
  }
  SECTION("two that flood end at their shares, whoever was first") {
    red.PutAll(1000, 1300);
    const uint64_t share = red.Snapshot().g3_share_bytes / kBlockBytes;
    CHECK(red.UsedBlocks() <= share + 4);
    CHECK(red.UsedBlocks() + 8 >= share);
    CHECK(green.InG3(0, 100) == 100);
  }
  world.store().CheckInvariants();
}

TEST_CASE("after a restart each tenant has what it had, and a smaller quota takes the oldest") {
  World world(ThreeTenants(100));
  world.Start();
  {
    Client red(&world, 0), blue(&world, 1);
    red.PutAll(0, 30);
    blue.PutAll(0, 60);
  }
  const uint64_t quota = GENERATE(uint64_t{100}, uint64_t{40}, uint64_t{0});
  world.Kill();
  world.SetQuota(1, quota * kBlockBytes);
  world.Start();
  Client red(&world, 0), blue(&world, 1);
  const uint64_t left = quota == 40 ? 20 : 50;
  CHECK(red.UsedBlocks() == 60);
  CHECK(blue.UsedBlocks() == 2 * left);
  CHECK(blue.InG3(60 - left, 60) == left);
  CHECK(blue.InG3(0, 60 - left) == 0);
  world.Settle();
  world.store().CheckInvariants();
  // Gone for good.
  uint64_t records = 0;
  REQUIRE(world.index().Scan([&](const IndexRecord&) { return ++records > 0; }).ok());
  CHECK(records == 30 + left);
  blue.PutAll(100, 110);
  CHECK(blue.UsedBlocks() == (quota == 0 ? 120 : quota));
}

TEST_CASE("what a tenant left that is no more gives room before all else") {
  WorldOptions options = ThreeTenants(0);
  auto world = std::make_unique<World>(options);
  world->Start();
  {
    Client green(world.get(), 2), red(world.get(), 0);
    red.PutAll(0, 40);
    green.PutAll(0, 100);
  }
  world->Kill();
  world->RenameTenant(2, "purple");
  world->Start();
  Client red(world.get(), 0), blue(world.get(), 1), purple(world.get(), 2);
  CHECK(purple.InG3(0, 100) == 0);
  CHECK(purple.UsedBlocks() == 0);
  CHECK(red.UsedBlocks() == 80);
  blue.PutAll(0, 150);  // more than its share: still no other tenant has to give
  CHECK(blue.InG3(0, 150) == 150);
  CHECK(red.InG3(0, 40) == 40);
  CHECK(blue.Snapshot().counters.g3_evictions == 0);
  world->store().CheckInvariants();
}

TEST_CASE("a tenant that fills the table of chunks makes room in it itself") {
  WorldOptions options = ThreeTenants(0);
  options.store.max_chunks = 60;
  World world(options);
  world.Start();
  Client red(&world, 0), blue(&world, 1);
  red.PutAll(0, 15);
  blue.PutAll(0, 200);
  CHECK(red.InG3(0, 15) == 15);
  CHECK(blue.Snapshot().chunks == 45);
  CHECK(red.Snapshot().counters.forgotten == 0);
  SECTION("and for another that has less than its share") {
    red.PutAll(15, 19);
    CHECK(red.InG3(0, 19) == 19);
    CHECK(blue.Snapshot().chunks == 41);
    CHECK(blue.Snapshot().counters.forgotten == 4);
  }
  world.store().CheckInvariants();
}

TEST_CASE("namespaces tell whose they are, and one tenant's never look like another's") {
  World world(ThreeTenants(0));
  NamespaceSpec spec{.model = "m", .tokens_per_chunk = 16};
  std::set<NamespaceDigest> seen;
  for (int i = 0; i < 100; ++i) {
    spec.model = absl::StrCat("m", i);
    for (const char* tenant : {"", "blue", "green"}) {
      const NamespaceDigest digest = spec.Digest(tenant);
      CHECK(seen.insert(digest).second);
      uint32_t tag = 0;
      std::memcpy(&tag, digest.bytes.data(), sizeof(tag));
      CHECK(tag == TenantOptions::Tag(tenant));
    }
  }
  CHECK(TenantOptions::Tag("") != TenantOptions::Tag("blue"));
}

TEST_CASE("a large chunk above its tenant's quota is refused, and nothing goes for it") {
  World world(ThreeTenants(30));
  world.Start();
  Client blue(&world, 1), green(&world, 2);
  blue.PutAll(0, 10);
  green.PutAll(0, 300);  // the device is full, and green above its share
  const uint64_t before = world.store().snapshot().counters.g3_evictions;
  CHECK(blue.Put(100, 36 * kBlockBytes) == "RESOURCE_EXHAUSTED");
  CHECK(world.store().snapshot().counters.g3_evictions == before);
  CHECK(blue.InG3(0, 10) == 10);
}

TEST_CASE("at its quota a tenant makes room for a large chunk by its own chunks alone") {
  World world(ThreeTenants(100));
  world.Start();
  Client blue(&world, 1), green(&world, 2);
  blue.PutAll(0, 50);
  green.PutAll(0, 300);
  for (uint64_t name = 0; name < 50; name += 3) blue.Touch(name);
  REQUIRE(blue.UsedBlocks() == 100);
  const uint64_t greens = green.InG3(0, 300);
  CHECK(blue.Put(100, 40 * kBlockBytes) == "ok");
  CHECK(green.InG3(0, 300) == greens);
  CHECK(blue.UsedBlocks() <= 100);
  CHECK(blue.InG3(0, 50) >= 18);  // a granule, of 32 of them, at most
  world.store().CheckInvariants();
}

}  // namespace kvkeep
