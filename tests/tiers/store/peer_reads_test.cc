// Reads for other nodes of the fleet: what they find, what they get, and what it may cost.
#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "tests/tiers/store/store_tester.h"
#include "tiers/base/checksum.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

constexpr uint32_t kTwoBlocks = 4096;  // payload of an image of two blocks

WorldOptions OfFleet() {
  WorldOptions options = SmallWorld();
  options.remote = true;
  return options;
}

// A store, and another node that asks it.
struct Asked {
  explicit Asked(const WorldOptions& options = OfFleet()) : s(options) {}

  // Returns "2" or "3" for each chunk, "-" for one that a peer could not read.
  std::string Look(const std::vector<uint64_t>& names) {
    std::vector<ChunkId> ids;
    for (const uint64_t name : names) ids.push_back(s.Id(name));
    std::string tiers;
    for (const std::optional<PeerChunk>& chunk : s.store().LookForPeer(ids)) {
      tiers += !chunk.has_value() ? "-" : chunk->tier == Tier::kG2 ? "2" : "3";
    }
    return tiers;
  }
  // Reads as Get of the tester does.
  std::string Get(uint64_t name) {
    ReadResult read = s.store().ReadForPeer(s.Id(name));
    s.store().CheckInvariants();
    came_from_g3 = read.from_g3;
    if (read.outcome == ReadOutcome::kMiss) return "miss";
    if (read.outcome == ReadOutcome::kBusy) return "busy";
    const std::string came = s.WaitFor(read.reader, 0, read.reader.shape().pieces());
    return came == "ok" ? s.Bytes(name, read.reader) : came;
  }
  ChunkReader Pin(uint64_t name) { return std::move(s.store().ReadForPeer(s.Id(name)).reader); }
  RemoteCounters remote() { return *s.store().snapshot().remote; }

  StoreTester s;
  bool came_from_g3 = false;  // of the last Get
};

}  // namespace

TEST_CASE("another node finds the chunks of both tiers, and reads them whole") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  PutIntoG3(s, 1, 3 * kBlockBytes, 100);
  CHECK(s.Put(2, kTwoBlocks, {.tail_bytes = 100}) == "stored");
  CHECK(a.Look({1, 2, 3}) == "32-");
  CHECK(s.store().LookForPeer(std::vector{s.Id(1)})[0]->shape.payload_bytes == 3 * kBlockBytes);
  CHECK(a.Get(1) == "hit");
  CHECK(a.came_from_g3);
  CHECK(a.Get(2) == "hit");
  CHECK_FALSE(a.came_from_g3);
  CHECK(a.Get(3) == "miss");
  CHECK(a.Look({1, 2, 3}) == "22-");
}

TEST_CASE("the names for other nodes are those of all chunks that they could read") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  PutIntoG3(s, 1, kTwoBlocks);
  CHECK(s.Put(2, kTwoBlocks) == "stored");
  CHECK(s.Put(3, kTwoBlocks) == "stored");
  s.Delete({3});
  const auto named = [&](const TenantTags& tenants) {
    std::vector<ChunkId> names;
    s.store().NameForPeers(tenants, [&](const ChunkId& id) {
      names.push_back(id);
      return true;
    });
    std::sort(names.begin(), names.end());
    return names;
  };
  std::vector<ChunkId> both{s.Id(1), s.Id(2)};
  std::sort(both.begin(), both.end());
  CHECK((named({TenantTagOf(s.ns)}) == both));
  CHECK(named({TenantTagOf(s.ns) + 1}).empty());
  CHECK(named({}).empty());
}

TEST_CASE("what another node reads is no hit, miss or bytes of a tenant's") {
  Asked a(SmallWorld());
  PutIntoG3(a.s, 1, kTwoBlocks);
  CHECK(a.s.Put(2, kTwoBlocks) == "stored");
  const StoreCounters before = a.s.counters();
  CHECK(a.Look({1, 2, 3}) == "32-");
  for (const uint64_t name : {1, 2, 3}) a.Get(name);
  const StoreCounters counters = a.s.counters();
  CHECK(counters.lookups == before.lookups);
  CHECK(counters.lookup_keys == before.lookup_keys);
  CHECK(counters.read_g2_hits + counters.read_g3_hits + counters.read_misses == 0);
  CHECK(counters.served_g2_bytes + counters.served_g3_bytes + counters.read_busy == 0);
  CHECK(counters.promotions == 1);
  CHECK(a.s.store().TakeForeignReads().empty());
}

TEST_CASE("what another node asks for and reads stays the next one to be evicted") {
  WorldOptions options = SmallWorld();
  options.store.g2_policy = "lru";
  options.device_blocks.clear();
  Asked a(options);
  StoreTester& s = a.s;
  constexpr uint64_t kFull = 32;  // chunks of two blocks
  for (uint64_t name = 1; name <= kFull; ++name) CHECK(s.Put(name, kTwoBlocks) == "stored");
  CHECK(a.Look({1}) == "2");
  CHECK(a.Get(1) == "hit");
  CHECK(s.Put(100, kTwoBlocks) == "stored");
  CHECK(a.Look({1, 2}) == "-2");
}

TEST_CASE("a chunk comes from G3 for another node as for a transient read") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  PutIntoG3(s, 1, kTwoBlocks);
  for (uint64_t name = 2; name <= 31; ++name) CHECK(s.Put(name, kTwoBlocks) == "stored");
  s.Settle();
  CHECK(a.Get(1) == "hit");
  CHECK(a.Look({1}) == "2");
  s.Put(100, kTwoBlocks);
  s.Put(101, kTwoBlocks);  // room for one of the two
  CHECK(a.Look({1}) == "3");
}

TEST_CASE("a chunk that a restart left in G2 is verified for another node") {
  WorldOptions options = SmallWorld();
  options.arena_outlives = true;
  options.device_blocks.clear();
  Asked a(options);
  StoreTester& s = a.s;
  CHECK(s.Put(1, kTwoBlocks) == "stored");
  CHECK(s.Put(2, kTwoBlocks) == "stored");
  s.KillAndStart();
  CHECK(a.Look({1, 2}) == "22");
  CHECK(a.Get(1) == "hit");
}

TEST_CASE("a chunk on its way from beyond the node is not there for another one") {
  Asked a;
  StoreTester& s = a.s;
  CHECK(s.Put(1, kTwoBlocks) == "stored");
  s.Settle();
  s.world.Kill();
  s.world.LoseArena();
  s.world.SetAttached(0, false);
  s.world.Start();
  s.Connect();
  const ChunkKey key = MakeKey(1);
  const PartId part(0);
  s.store().Recall(s.session, {s.ns, std::span(&key, 1), std::span(&part, 1)}, [](auto) {});
  while (s.store().snapshot().g2.used_bytes == 0) REQUIRE(s.world.RunOneAtRandom());
  REQUIRE(s.Pin(1));  // here it can be waited for
  CHECK(a.Look({1}) == "-");
  CHECK(a.Get(1) == "miss");
  s.RunAll();
  CHECK(a.Look({1}) == "2");
  CHECK(a.Get(1) == "hit");
}

TEST_CASE("what failed, was deleted, or lies on a device that is gone is not there") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  PutIntoG3(s, 1, kTwoBlocks);
  CHECK(a.Look({1}) == "3");
  SECTION("deleted") {
    s.Delete({1});
    CHECK(a.Look({1}) == "-");
    CHECK(a.Get(1) == "miss");
  }
  SECTION("damaged") {
    s.OnDisk(s.DeviceBlock(1) + 1, 1)[100] ^= std::byte{1};
    ChunkReader reader = a.Pin(1);
    REQUIRE(reader);
    CHECK(s.WaitFor(reader, 0, 1) == "damaged");
    CHECK(a.Look({1}) == "-");
    CHECK(a.Get(1) == "miss");
  }
  SECTION("its device does not answer") {
    s.world.SetGone(0, true);
    for (int i = 0; i < 3 && a.Look({1}) == "3"; ++i) a.Get(1);
    s.Pass(std::chrono::seconds(1));
    for (int i = 0; i < 3 && a.Look({1}) == "3"; ++i) a.Get(1);
    CHECK(a.Look({1}) == "-");
    CHECK(a.Get(1) == "miss");
  }
}

TEST_CASE("other nodes hold at most a quarter of what leases may, but any one chunk of half") {
  Asked a(SmallWorld());  // leases may hold 64 blocks
  StoreTester& s = a.s;
  for (uint64_t name = 1; name <= 12; ++name) CHECK(s.Put(name, kTwoBlocks) == "stored");
  std::vector<ChunkReader> held;
  for (uint64_t name = 1; name <= 8; ++name) held.push_back(a.Pin(name));
  for (const ChunkReader& reader : held) CHECK(reader);
  CHECK(a.Get(9) == "busy");
  CHECK(a.Get(1) == "busy");  // each use counts
  CHECK(s.Get(9) == "hit");  // not the node's own
  held.pop_back();
  CHECK(a.Get(9) == "hit");
  held.clear();
  CHECK(s.Put(20, 24 * kBlockBytes) == "stored");  // 25 blocks
  CHECK(a.Get(20) == "hit");
  ChunkReader one = a.Pin(1);
  CHECK(a.Get(20) == "busy");
  one = ChunkReader();
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
}

TEST_CASE("another node reads while the store drains") {
  Asked a(SmallWorld());
  PutIntoG3(a.s, 1, kTwoBlocks);
  CHECK(a.s.Put(2, kTwoBlocks) == "stored");
  a.s.store().BeginDrain();
  CHECK(a.Look({1, 2}) == "32");
  CHECK(a.Get(1) == "hit");
  CHECK(a.Get(2) == "hit");
}

TEST_CASE("all nodes wait in one line, beside each session's") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  for (uint64_t name = 1; name <= 4; ++name) CHECK(s.Put(name, kTwoBlocks) == "stored");
  s.Settle();
  s.world.Kill();
  s.world.LoseArena();
  s.world.Start();
  s.Connect();
  // One image is under way at a time, so turns can be seen.
  ChunkReader first = a.Pin(1), second = a.Pin(2), own = s.Pin(3);
  REQUIRE((first && second && own));
  CHECK(s.WaitFor(own, 0, 1) == "ok");
  CHECK(s.Bytes(3, own) == "hit");
  CHECK(s.WaitFor(second, 0, 1) == "ok");
  CHECK(s.Bytes(2, second) == "hit");
}

TEST_CASE("for a chunk that waits for its second use, another node's read is one") {
  WorldOptions options = OfFleet();
  options.store.remote_second_use = true;
  Asked a(options);
  StoreTester& s = a.s;
  CHECK(s.Put(1, kTwoBlocks) == "stored");
  s.Settle();
  CHECK(a.Look({1}) == "2");
  s.Settle();
  CHECK(s.world.bucket().empty());
  SECTION("read") {
    CHECK(a.Get(1) == "hit");
    s.Settle();
    CHECK(s.world.bucket().size() == 1);
    CHECK(a.remote().offered_chunks == 1);
  }
  SECTION("not in a drain") {
    s.store().BeginDrain(true);
    CHECK(a.Get(1) == "hit");
    s.RunAll();
    CHECK(s.world.bucket().empty());
  }
}

TEST_CASE("a long question is answered in slices") {
  WorldOptions options = SmallWorld();
  options.hold_work = 50;
  Asked a(options);
  int slices = 0;
  bool asks = false;
  a.s.world.Kill();
  a.s.world.SetBetweenSlices([&] {
    if (!std::exchange(asks, false)) return;
    ++slices;
    a.s.Delete({7});
    asks = true;
  });
  a.s.world.Start();
  a.s.Connect();
  CHECK(a.s.Put(7, kTwoBlocks) == "stored");
  std::vector<uint64_t> names(100, 8);
  names.push_back(7);
  asks = true;
  const std::string tiers = a.Look(names);
  asks = false;
  CHECK(tiers == std::string(101, '-'));
  CHECK(slices >= 10);
}

TEST_CASE("a reader tells what its image is, and where its bytes are") {
  Asked a(SmallWorld());
  StoreTester& s = a.s;
  const uint32_t payload = 5000;
  PutIntoG3(s, 1, payload, 100);
  const auto check = [&](const ChunkReader& reader) {
    const std::optional<ImageIdentity> identity = reader.Identity();
    REQUIRE(identity.has_value());
    CHECK(identity->id == s.Id(1));
    CHECK(identity->shape == ImageShape{payload, 100});
    CHECK(identity->created_unix_us > 0);
    CHECK(identity->tail_checksum == Xxh3(std::vector(100, std::byte{'t'})));
    CHECK(identity->piece_checksums == reader.PieceChecksums());
    std::vector<std::byte> image;
    const uint64_t end = reader.shape().used_bytes();
    for (uint64_t at = kHeaderBytes; at < end;) {
      const auto run = reader.Image(at, end - at);
      image.insert(image.end(), run.begin(), run.end());
      at += run.size();
    }
    CHECK(Xxh3(std::span(image).first(payload)) == identity->piece_checksums[0]);
    CHECK(Xxh3(std::span(image).last(100)) == identity->tail_checksum);
  };
  ChunkReader reader = a.Pin(1);
  REQUIRE(s.WaitFor(reader, 0, 1) == "ok");
  check(reader);  // by its promotion
  reader = a.Pin(1);
  check(reader);  // by the header page in memory
  CHECK(ChunkReader(std::move(reader)).Identity()->created_unix_us > 0);
}

TEST_CASE("what was damaged in memory has no identity") {
  WorldOptions options = SmallWorld();
  Asked a(options);
  StoreTester& s = a.s;
  CHECK(s.Put(1, kTwoBlocks) == "stored");
  ChunkReader reader = a.Pin(1);
  REQUIRE(reader.Identity().has_value());
  std::byte* const header = s.world.arena().Memory(reader.extents()[0]).data();
  header[40] ^= std::byte{1};
  CHECK_FALSE(reader.Identity().has_value());
  CHECK(reader.PieceChecksums().empty());
}

}  // namespace kvkeep
