// State that a restart finds: after a kill, after a power cut, after a delete.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

TEST_CASE("after a kill everything that was stored in G3 is a hit") {
  StoreTester s;
  for (uint64_t i = 0; i < 20; ++i) {
    REQUIRE(s.Put(i, 1 + i * 700) == "stored");
    s.RunAll();
  }
  s.Settle();
  s.KillAndStart();
  CHECK(s.counters().recovered_chunks == 20);
  for (uint64_t i = 0; i < 20; ++i) {
    CHECK(s.Where(i) == "3");
    CHECK(s.Get(i) == "hit");
  }
  CHECK(s.counters().stale_records == 0);
}

TEST_CASE("a kill before the first sync after a put leaves records that are sure") {
  StoreTester s;
  for (const bool power_cut : {false, true}) {
    s.RunAll();  // work that the start began, no tick
    for (uint64_t i = 0; i < 3; ++i) REQUIRE(s.Put(i, 5000 + power_cut) == "stored");
    s.RunAll();
    s.KillAndStart();
    for (uint64_t i = 0; i < 3; ++i) CHECK(s.Where(i) == "3");
    if (!power_cut) s.PowerCutAndStart();
  }
}

TEST_CASE("a kill in the middle of everything leaves only whole chunks") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    WorldOptions options = SmallWorld();
    options.seed = seed;
    StoreTester s(options);
    for (uint64_t i = 0; i < 8; ++i) REQUIRE(s.Put(i, 5000) == "stored");
    for (uint64_t i = 0; i < seed * 3; ++i) s.world.RunOneAtRandom();
    s.KillAndStart();
    for (uint64_t i = 0; i < 8; ++i) {
      const std::string got = s.Get(i);
      CHECK((got == "hit" || got == "miss"));
    }
    s.store().CheckInvariants();
  }
}

TEST_CASE("after a power cut records are promised only once their header was read") {
  StoreTester s;
  for (uint64_t i = 0; i < 3; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  std::string synced;
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  s.RunAll();
  REQUIRE(synced == "ok");
  // The data of one never arrived, so its record does not hold.
  const auto image = s.OnDisk(s.DeviceBlock(1), 2);
  std::fill(image.begin(), image.end(), std::byte{0});
  s.PowerCutAndStart();
  for (uint64_t i = 0; i < 3; ++i) CHECK(s.Where(i).empty());
  CHECK(s.Get(0) == "miss");
  std::string durable;
  s.WhenDurable(1, &durable);
  CHECK(durable == "NOT_FOUND");  // not promised, so not durable either
  s.RunAll();
  CHECK(s.Get(0) == "hit");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
  CHECK(s.counters().stale_records == 1);
  CHECK(s.counters().corrupt_chunks == 0);
}

TEST_CASE("headers that cannot be read for a while after a power cut cost no chunk") {
  StoreTester s;
  for (uint64_t i = 1; i <= 5; ++i) REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
  s.Settle();
  for (uint64_t i = 1; i <= 5; ++i) REQUIRE(s.Durable(i) == "ok");
  s.world.PowerCut();
  s.world.SetDeviceFaults({.read_error = 1});
  s.world.Start();
  s.Connect();
  s.Pass(std::chrono::milliseconds(500));
  CHECK(s.world.device().stats().read_errors >= 5);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOffline);
  for (uint64_t i = 1; i <= 5; ++i) CHECK(s.Where(i).empty());
  s.world.device().set_options({});
  s.Pass(std::chrono::seconds(40));
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  for (uint64_t i = 1; i <= 5; ++i) CHECK(s.Get(i) == "hit");
  CHECK(s.counters().stale_records == 0);
}

TEST_CASE("a header that can never be read is given up, and the device is not blamed") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  REQUIRE(s.Durable(1) == "ok");
  s.world.PowerCut();
  s.world.SetDeviceFaults({.read_error = 1});
  s.world.Start();
  s.Connect();
  s.Pass(std::chrono::seconds(25));
  CHECK(s.counters().stale_records == 0);
  s.Pass(std::chrono::seconds(15));
  CHECK(s.counters().stale_records == 1);
  CHECK(s.world.device().stats().read_errors == 30);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kDegraded);
  s.store().CheckInvariants();
}

// The last write of a machine, cut short at every possible place.
TEST_CASE("an image that ends at any of its blocks is lost, and no other with it") {
  constexpr size_t kBytes = 50'000;
  constexpr uint64_t kLast = 3;
  for (const bool power : {false, true}) {
    uint64_t blocks = 1;
    for (uint64_t kept = 0; kept <= blocks; ++kept) {
      StoreTester s;
      for (uint64_t i = 1; i <= kLast; ++i) {
        REQUIRE(s.Put(i, kBytes, {.durable = true, .tail_bytes = 700}) == "stored");
        s.Settle();
        REQUIRE(s.Durable(i) == "ok");
      }
      const ExtentList extents = s.world.index().Find(s.Id(kLast))->extents;
      REQUIRE(extents.size() == 1);
      blocks = extents[0].count.value();
      power ? s.world.PowerCut() : s.world.Kill();
      const auto torn = s.OnDisk(extents[0].first.value() + kept, blocks - kept);
      std::fill(torn.begin(), torn.end(), std::byte{0});
      s.world.Start();
      s.Connect();
      s.RunAll();
      const bool whole = kept == blocks;
      const std::string got = s.Get(kLast);
      INFO((power ? "power cut, " : "kill, ") << kept << " of " << blocks << " blocks: " << got);
      CHECK((got == "hit") == whole);
      CHECK((whole || got == "damaged" || got == "miss"));
      for (uint64_t i = 1; i < kLast; ++i) CHECK(s.Get(i) == "hit");
      CHECK(s.counters().corrupt_chunks + s.counters().stale_records == (whole ? 0 : 1));
      CHECK(s.Put(kLast, kBytes) == (whole ? "present" : "stored"));
      s.store().CheckInvariants();
    }
    CHECK(blocks == 14);
  }
}

TEST_CASE("what is put durable again after its unsynced bytes were lost is there, whole") {
  const std::vector<std::string> ways = {"power cut", "power cut, then kill", "drive lost power"};
  for (const std::string& way : ways) {
    uint64_t lost = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      INFO(way << ", seed " << seed);
      WorldOptions options = SmallWorld();
      options.seed = seed;
      StoreTester s(options);
      REQUIRE(s.Put(1, 40'000) == "stored");
      s.RunAll();  // written and in the index, but nothing is synced
      REQUIRE(s.Where(1) == "23");
      if (way == "drive lost power") {
        s.world.Kill();
        s.world.disk().PowerCut(seed);
        s.world.Start();
        s.Connect();
      } else {
        s.PowerCutAndStart();
      }
      s.RunAll();
      if (way == "power cut, then kill") {
        REQUIRE(s.Put(2) == "stored");
        s.Settle();  // all headers were read, and the index synced in this boot
        s.KillAndStart();
      }
      const std::string again = s.Put(1, 40'000, {.durable = true});
      CHECK((again == "present" || again == "stored"));
      REQUIRE(s.Durable(1) == "ok");
      s.PowerCutAndStart();
      s.RunAll();
      const std::string got = s.Get(1);
      CHECK((got == "hit" || got == "old"));
      lost += again == "stored";
    }
    CHECK(lost > 10);
  }
}

TEST_CASE("what a device still knows that was away over a power cut hides no sure copy elsewhere") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {512, 512};
  StoreTester s(options);
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  const size_t old = 0;  // read first at a start
  REQUIRE(s.world.index(old).Find(s.Id(1)).has_value());
  const auto image = s.OnDisk(s.DeviceBlock(1, old), 2, old);
  s.world.PowerCut();
  s.world.SetAttached(old, false);
  s.world.Start();
  s.Connect();
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.Settle();
  REQUIRE(s.Durable(1) == "ok");
  s.world.Kill();
  std::fill(image.begin(), image.end(), std::byte{0});  // lost with the power
  s.world.SetAttached(old, true);
  s.world.Start();
  s.Connect();
  s.RunAll();
  CHECK(s.Get(1) == "hit");
  s.Settle();
  CHECK_FALSE(s.world.index(old).Find(s.Id(1)).has_value());
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a chunk in G2 whose record is not confirmed is written anew, and its record kept") {
  WorldOptions options = SmallWorld();
  options.arena_outlives = true;
  options.device_blocks = {130};
  StoreTester s(options);
  constexpr uint64_t kChunks = 40;  // more than are confirmed at once
  for (uint64_t i = 0; i < kChunks; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
  s.PowerCutAndStart();
  s.world.index().SetFaults({.commit_refused = 1});  // nor is a sync noted, then
  s.RunAll();
  for (uint64_t i = 20; i < kChunks; ++i) REQUIRE(s.Get(i) == "hit");
  s.KillAndStart();  // their records are unconfirmed again
  s.world.index().SetFaults({});
  const auto sequence = [&s](uint64_t i) { return s.world.index().Find(s.Id(i))->sequence; };
  const auto before = sequence(32);
  REQUIRE(s.Where(32) == "2");
  s.RunAll();
  for (uint64_t i = 32; i < kChunks; ++i) CHECK(s.Get(i) == "hit");
  s.Settle();  // written back again
  for (uint64_t i = 32; i < kChunks; ++i) CHECK(s.Where(i) == "23");
  CHECK(sequence(32) > before);
  CHECK(s.Durable(32) == "ok");
}

TEST_CASE("blocks of a record that a start drops are reused only when the index has forgotten it") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {512, 512};
  StoreTester s(options);
  const auto start_with = [&s](bool first) {
    s.world.Kill();
    s.world.SetAttached(0, first);
    s.world.Start();
    s.Connect();
  };
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  REQUIRE(s.world.index(0).Find(s.Id(1)).has_value());
  start_with(false);
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.world.HoldIndex(true);
  start_with(true);  // both devices have it: the second one's record goes
  for (uint64_t i = 10; i < 20; ++i) REQUIRE(s.Put(i) == "stored");
  s.RunAll();
  start_with(false);  // before any batch
  s.world.HoldIndex(false);
  CHECK(s.Get(1) == "hit");
}

TEST_CASE(
    "a device that goes away while its records are confirmed is asked again when it is back") {
  StoreTester s;
  constexpr uint64_t kChunks = 60;  // more than are confirmed at once
  for (uint64_t i = 0; i < kChunks; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
  s.PowerCutAndStart();
  s.world.device().SetGone(true);
  s.Pass(std::chrono::seconds(1));
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOffline);
  CHECK(s.store().snapshot().g3.chunks == kChunks);
  s.world.device().SetGone(false);
  s.Pass(std::chrono::seconds(31));
  for (uint64_t i = 0; i < kChunks; ++i) CHECK(s.Where(i) == "3");
  CHECK(s.Get(kChunks - 1) == "hit");
  CHECK(s.counters().stale_records == 0);
}

TEST_CASE("who was read whole after a power cut is durable without being written again") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Durable(1) == "ok");
  s.PowerCutAndStart();
  s.RunAll();
  CHECK(s.Durable(1) == "NOT_FOUND");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Put(1, 4096, {.durable = true}) == "present");
}

TEST_CASE("a durable put waits while the index refuses to note what is doubtful") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Durable(1) == "ok");
  s.PowerCutAndStart();
  s.world.index().SetFaults({.commit_refused = 1});
  s.RunAll();
  s.world.index().SetFaults({});
  REQUIRE(s.Put(2, 4096, {.durable = true}) == "stored");
  s.RunAll();
  std::string durable;
  s.WhenDurable(2, &durable);
  s.world.index().SetFaults({.commit_refused = 1});
  s.Pass(std::chrono::seconds(2));
  CHECK(durable == "waiting");
  s.world.index().SetFaults({});
  s.Pass(std::chrono::seconds(1));
  CHECK(durable == "ok");
}

TEST_CASE("a chunk may be put anew while its record is unsure, and the new bytes stay") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Durable(1) == "ok");
  s.PowerCutAndStart();
  REQUIRE(s.Where(1).empty());
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  CHECK(s.Get(1) == "hit");
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
  CHECK(s.store().snapshot().g3.chunks == 1);
}

TEST_CASE("a chunk put anew survives a kill although a reader of the deleted one lets go later") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.KillAndStart();
  // A promotion reads the old extents: they cannot be freed before it ends.
  s.world.device().set_options({.delay = 1, .max_delay_turns = 100'000});
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  REQUIRE(s.Delete({1}) == 1);
  s.world.device().set_options({});
  REQUIRE(s.Put(1) == "stored");
  for (int i = 0; i < 3000 && s.Where(1) != "23"; ++i) s.world.RunOneAtRandom();
  REQUIRE(s.Where(1) == "23");
  REQUIRE(s.store().snapshot().g3.chunks == 2);  // the old one is being read still
  reader = ChunkReader();
  s.Settle();
  CHECK(s.store().snapshot().g3.chunks == 1);
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a chunk deleted while its record waits for a batch, and put anew, is stored once") {
  StoreTester s;
  s.world.HoldIndex(true);
  REQUIRE(s.Put(1) == "stored");
  s.RunAll();  // its batch is under way
  REQUIRE(s.Put(2) == "stored");
  s.RunAll();  // waits for the next batch
  REQUIRE(s.Delete({2}) == 1);
  REQUIRE(s.Put(2) == "stored");
  s.RunAll();
  s.world.HoldIndex(false);
  s.Settle();
  CHECK(s.Where(2) == "23");
  CHECK(s.store().snapshot().g3.used_bytes == 5 * kBlockBytes);
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("a batch that removes and one that just ended never disagree on a key put anew") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.KillAndStart();
  s.world.device().set_options({.delay = 1, .max_delay_turns = 100'000});
  ChunkReader reader = s.Pin(1);
  const auto run_some = [&s] {
    for (int i = 0; i < 500; ++i) s.world.RunOneAtRandom();
  };
  REQUIRE(s.Delete({1}) == 1);
  run_some();  // its record goes at once, its blocks once the reader releases them
  s.world.device().set_options({});
  s.world.HoldIndex(true);
  for (const uint64_t name : {3, 2, 1}) {  // the first batch has 3, the next 2 and 1
    REQUIRE(s.Put(name) == "stored");
    run_some();
  }
  s.world.index_executor().RunOne();
  REQUIRE(s.Where(3) == "23");
  REQUIRE(s.store().snapshot().g3.chunks == 2);  // 3, and the chunk that waits for the reader
  REQUIRE(s.Delete({2}) == 1);
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  reader = ChunkReader();  // the deleted 1 leaves, while the batch with the new one is under way
  s.world.HoldIndex(false);
  s.Settle();
  CHECK(s.Where(1) == "23");
  CHECK(s.store().snapshot().g3.chunks == 2);
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("deleted and cleared chunks do not come back after a kill") {
  StoreTester s;
  for (uint64_t i = 0; i < 6; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  CHECK(s.Delete({0, 1, 99}) == 2);
  s.Settle();
  s.KillAndStart();
  CHECK(s.Get(0) == "miss");
  CHECK(s.Get(2) == "hit");
  CHECK(s.store().Clear(std::nullopt) == 4);
  s.Settle();
  CHECK(s.store().snapshot().g3.used_bytes == kBlockBytes);
  s.KillAndStart();
  for (uint64_t i = 0; i < 6; ++i) CHECK(s.Get(i) == "miss");
}

TEST_CASE("Clear of one namespace leaves the others") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  const NamespaceDigest other =
      s.store()
          .OpenNamespace(s.session, {.model = "other", .tokens_per_chunk = 16, .parts = 4})
          .value();
  const NamespaceDigest own = std::exchange(s.ns, other);
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  CHECK(s.store().Clear(other) == 2);
  CHECK(s.Get(1) == "miss");
  s.ns = own;
  CHECK(s.Where(1) == "23");
  CHECK(s.store().Clear(other) == 0);
}

TEST_CASE("undecodable records are dropped, counted, and leave the index") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  s.world.index().DamageRecord(s.Id(1));
  s.KillAndStart();
  CHECK(s.counters().recovery_dropped_chunks == 1);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
  CHECK(s.Put(1) == "stored");
  s.Settle();
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("records over max_chunks are forgotten at the start") {
  WorldOptions options = SmallWorld();
  StoreTester s(options);
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.world.Kill();
  MemoryIndex& index = s.world.index();
  ManualClock clock;
  SeededRandom random(5);
  MemoryArena arena(BlockCount(64), BlockCount(64));
  ManualExecutor executor, commits;
  MemoryDevice device(512 * kBlockBytes, &executor);
  MemoryNvmeDevice nvme(&device, &index, 1);
  options.store.max_chunks = 4;
  StoreDeps deps{.clock = &clock,
                 .random = &random,
                 .arena = &arena,
                 .devices = {{&nvme, &commits, &executor}},
                 .copy_executor = &executor};
  {
    auto store = Store::Create(options.store, deps).value();
    store->CheckInvariants();
    CHECK(store->snapshot().g3.chunks == 4);
    CHECK(store->snapshot().counters.recovery_dropped_chunks == 6);
    commits.RunAll();
    store->CheckInvariants();
    executor.Drop();
  }
  int left = 0;
  REQUIRE(index.Scan([&](const IndexRecord&) { return ++left > 0; }).ok());
  CHECK(left == 4);
}

namespace {

// A device without a single block, which no store can use.
class EmptyDevice final : public NvmeDevice {
 public:
  explicit EmptyDevice(MemoryNvmeDevice* like) : like_(*like) {}
  const Uuid& uuid() const override { return like_.uuid(); }
  const std::string& dir() const override { return like_.dir(); }
  BlockCount capacity_blocks() const override { return BlockCount(0); }
  BlockCount barrier_blocks() const override { return BlockCount(0); }
  ExtentList ReservedExtents() const override { return {}; }
  uint64_t used_directory_bytes() const override { return 0; }
  uint64_t capacity_bytes() const override { return 0; }
  bool index_over_budget() const override { return false; }
  Device& io() override { return like_.io(); }
  ChunkIndex& index() override { return like_.index(); }

 private:
  MemoryNvmeDevice& like_;
};

}  // namespace

TEST_CASE("a store that could not start leaves no work behind") {
  ManualClock clock;
  SeededRandom random(5);
  MemoryArena arena(BlockCount(64), BlockCount(64));
  ManualExecutor executor;
  MemoryDevice device(512 * kBlockBytes, &executor);
  MemoryIndex index;
  // Two records of one place: the start removes one of them.
  IndexBatch batch;
  for (uint64_t i = 1; i <= 2; ++i) {
    batch.adds.push_back({.id = {NamespaceDigest{}, MakeKey(i), PartId(0)},
                          .shape = {.payload_bytes = 1},
                          .sequence = CommitSequence(i),
                          .extents = {Extent{BlockNumber(1), BlockCount(2)}}});
  }
  REQUIRE(index.Commit(batch).ok());
  MemoryNvmeDevice first(&device, &index, 1);
  EmptyDevice second(&first);
  StoreDeps deps{.clock = &clock,
                 .random = &random,
                 .arena = &arena,
                 .devices = {{&first, &executor, &executor}, {&second, &executor, &executor}},
                 .copy_executor = &executor};
  CHECK_FALSE(Store::Create({}, deps).ok());
  CHECK(executor.idle());
}

}  // namespace kvkeep
