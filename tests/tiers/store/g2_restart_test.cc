// G2 over a restart: which chunks are served again, and which are not, when the arena outlives the
// process.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/tiers/store/warm_world.h"

namespace kvkeep {
namespace {

// Returns the only image.
uint64_t OnlyBlock(StoreTester& s) {
  const std::vector<uint64_t> blocks = MarkedBlocks(s);
  REQUIRE(blocks.size() == 1);
  return blocks[0];
}

void Flip(std::byte& byte) { byte ^= std::byte{4}; }

// All of an arena's contents, to be put back later.
struct SavedArena {
  explicit SavedArena(MemoryArena& arena)
      : bytes(arena.SegmentMemory(0).begin(), arena.SegmentMemory(0).end()),
        marks(arena.live_marks().begin(), arena.live_marks().end()) {}
  void PutBack(MemoryArena& arena) const {
    std::copy(bytes.begin(), bytes.end(), arena.SegmentMemory(0).begin());
    std::copy(marks.begin(), marks.end(), arena.live_marks().begin());
  }
  std::vector<std::byte> bytes;
  std::vector<uint64_t> marks;
};

}  // namespace

TEST_CASE("after a kill what was in G2 is there again, and a hit once it was verified") {
  WorldOptions options = WarmWorld(false);
  options.g2_blocks = 1024;
  options.g2_segment_blocks = 256;  // so that an image is split over segments
  options.store.max_leased_bytes = 1024 * kBlockBytes;
  options.store.max_reserved_bytes = 1024 * kBlockBytes;
  StoreTester s(options);
  const std::vector<size_t> sizes = {1, 4096, 4097, 100'000, kPieceBytes - 4096, 2 * kPieceBytes};
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    REQUIRE(s.Put(i, sizes[i], {.tail_bytes = i % 2 == 0 ? 0 : 300u}) == "stored");
  }
  const uint64_t used = s.store().snapshot().g2.used_bytes;
  for (int restart = 0; restart < 3; ++restart) {
    s.KillAndStart();
    s.store().CheckInvariants();
    CHECK(s.counters().recovered_g2_chunks == sizes.size());
    CHECK(s.counters().recovery_dropped_g2_chunks == 0);
    CHECK(s.store().snapshot().g2.used_bytes == used);
    CHECK(s.store().snapshot().g2.chunks == sizes.size());
    for (uint64_t i = 0; i < sizes.size(); ++i) CHECK(s.Where(i) == "2");
    CHECK(s.Put(2) == "present");
    if (restart == 0) continue;  // once more, without a check of them
    for (uint64_t i = 0; i < sizes.size(); ++i) CHECK(s.Get(i) == "hit");
    CHECK(s.counters().read_g2_hits == sizes.size());
    CHECK(s.counters().read_g3_hits == 0);
    s.store().CheckInvariants();
  }
  CHECK(s.Delete({0, 1, 2, 3, 4, 5}) == 6);
  CHECK(s.store().snapshot().g2.used_bytes == 0);
}

TEST_CASE("a chunk that was in both tiers is in both after a kill") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.KillAndStart();
  CHECK(s.Where(1) == "23");
  CHECK(s.Get(1) == "hit");
  CHECK(s.counters().read_g2_hits == 1);
  CHECK(s.counters().write_backs == 0);
  s.FloodG2();
  CHECK(s.Where(1) == "3");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("nothing is kept when the arena does not outlive the process, or was made anew") {
  StoreTester cold(SmallWorld());
  REQUIRE(cold.Put(1) == "stored");
  cold.KillAndStart();
  CHECK(cold.Where(1).empty());
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1) == "stored");
  s.world.Kill();
  s.world.LoseArena();
  s.world.Start();
  s.Connect();
  CHECK(s.Where(1).empty());
  CHECK(s.counters().recovered_g2_chunks + s.counters().recovery_dropped_g2_chunks == 0);
}

TEST_CASE("readers of a recovered chunk wait for its verification, which they share") {
  WorldOptions options = WarmWorld(false);
  options.g2_blocks = options.g2_segment_blocks = 1024;
  options.store.max_leased_bytes = options.store.max_reserved_bytes = 1024 * kBlockBytes;
  StoreTester s(options);
  REQUIRE(s.Put(1, 2 * kPieceBytes) == "stored");
  s.KillAndStart();
  const std::vector<ChunkKey> keys = {MakeKey(1)};
  const std::vector<PartId> parts = {PartId(0)};
  const LookupRequest request{.chunks = {s.ns, keys, parts},
                              .lease_mode = LeaseMode::kLeadingRun,
                              .client_request_id = 1,
                              .want_places = true};
  LookupResult leased = s.store().Lookup(s.session, request).value();
  REQUIRE(leased.places.size() == 1);
  CHECK_FALSE(leased.places[0].readable);
  CHECK(s.Where(1) == "2");  // while it is being verified
  ChunkReader first = s.Pin(1), second = s.Pin(1, leased.lease);
  std::vector<std::string> told;
  for (const size_t piece : {0, 1}) {
    first.WhenReady(piece, 1, [&told, piece](absl::Status status) {
      told.push_back((status.ok() ? "ok " : "failed ") + std::to_string(piece));
    });
  }
  CHECK(told.empty());
  while (told.empty()) REQUIRE(s.world.RunOneAtRandom());
  CHECK(told.size() == 1);  // the other piece is still to come
  CHECK(s.WaitFor(second, 0, 2) == "ok");
  CHECK(told.size() == 2);
  CHECK(s.Bytes(1, first) == "hit");
  leased = s.store().Lookup(s.session, request).value();
  CHECK(leased.places[0].readable);
  CHECK(s.counters().promotions == 0);
}

TEST_CASE("a flipped byte anywhere in a recovered image is found, and becomes a miss") {
  const auto [offset, dropped_at_once] =
      GENERATE(table<uint64_t, bool>({{0, true},              // the magic
                                      {200, true},            // a piece's checksum
                                      {2200, true},           // the number of its extents
                                      {2208, true},           // the arena
                                      {2224, true},           // the incarnation
                                      {2248, true},           // an extent's length
                                      {2300, false},          // what no extent uses
                                      {2760, false},          // the MAC
                                      {4096, false},          // payload
                                      {4096 + 4999, false},   // its last byte
                                      {9152 + 99, false}}));  // the metadata
  const uint64_t at = offset;
  const bool at_once = dropped_at_once;
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1, 5000, {.tail_bytes = 100}) == "stored");
  s.world.Kill();
  Flip(BlocksAt(s, OnlyBlock(s), 3)[at]);
  s.world.Start();
  s.Connect();
  CHECK(s.counters().recovery_dropped_g2_chunks == (at_once ? 1 : 0));
  CHECK(s.Get(1) == (at_once ? "miss" : "damaged"));
  CHECK(s.counters().corrupt_chunks == (at_once ? 0 : 1));
  CHECK(s.Get(1) == "miss");
  CHECK(MarkedBlocks(s).empty());
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  s.store().CheckInvariants();
  CHECK(s.Put(1) == "stored");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a header that goes bad between recovery and the first read is found") {
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1) == "stored");
  s.KillAndStart();
  Flip(BlocksAt(s, OnlyBlock(s))[130]);
  CHECK(s.Get(1) == "damaged");
  CHECK(s.Get(1) == "miss");
}

TEST_CASE("a damaged copy in memory goes, the one in G3 stays and serves the next reader at once") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.world.Kill();
  Flip(BlocksAt(s, OnlyBlock(s) + 1)[0]);
  s.world.Start();
  s.Connect();
  SECTION("a reader holds the damaged one") {
    ChunkReader reader = s.Pin(1);
    CHECK(s.WaitFor(reader, 0, 1) == "damaged");
    s.store().CheckInvariants();
    CHECK(s.Where(1) == "3");
    CHECK(s.Get(1) == "hit");
    CHECK(s.Where(1) == "23");
    CHECK(s.store().snapshot().g2.used_bytes == 4 * kBlockBytes);
    reader = ChunkReader();
    CHECK(s.store().snapshot().g2.used_bytes == 2 * kBlockBytes);
  }
  SECTION("nobody holds it: the sweep finds it") {
    s.Pass(std::chrono::milliseconds(200));
    CHECK(s.Where(1) == "3");
    CHECK(s.store().snapshot().g2.used_bytes == 0);
    CHECK(s.Get(1) == "hit");
  }
  CHECK(s.counters().corrupt_chunks == 1);
  s.KillAndStart();
  CHECK(s.Where(1) == "23");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a clear takes a chunk that moves to a slot behind it meanwhile") {
  WorldOptions options = WarmWorld();
  options.hold_work = 1;  // slot by slot
  StoreTester s(options);
  for (uint64_t name = 1; name <= 9; ++name) REQUIRE(s.Put(name) == "stored");
  s.Settle();
  // The clear comes to the second slot, and the damaged copy's check ends.
  bool clearing = false;
  s.world.SetBetweenSlices([&] {
    if (std::exchange(clearing, false)) s.RunAll();
  });
  s.world.Kill();
  for (const uint64_t block : MarkedBlocks(s)) Flip(BlocksAt(s, block + 1)[0]);
  s.world.Start();
  s.Connect();
  REQUIRE(s.Delete({1}) == 1);  // records come in the order of keys: the first slot is free
  s.RunAll();
  ChunkReader reader = s.Pin(9);
  REQUIRE(reader);
  clearing = true;
  CHECK(s.store().Clear(std::nullopt) == 8);
  REQUIRE_FALSE(clearing);
  s.RunAll();
  CHECK(s.Get(9) == "miss");
  reader = ChunkReader();
  s.Settle();
  CHECK(s.store().snapshot().g3.chunks == 0);
}

TEST_CASE("header pages that a client copies into its payloads are never taken for images") {
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2) == "stored");
  REQUIRE(MarkedBlocks(s) == std::vector<uint64_t>{0, 2});
  // Any client can read a genuine header page and the payload behind it.
  const std::vector<std::byte> stolen(BlocksAt(s, 2, 2).begin(), BlocksAt(s, 2, 2).end());
  const uint64_t mark = s.world.arena().live_marks()[2];
  REQUIRE(s.Delete({1, 2}) == 2);
  Reservation reservation;
  REQUIRE(s.Reserve(3, 3 * kBlockBytes, &reservation) == "reserved");
  reservation.Append(std::span(stolen).first(kBlockBytes));  // and once where it never was
  reservation.Append(stolen);
  REQUIRE(reservation.Seal({}).ok());
  // It lies at the very block that it names, with its payload.
  REQUIRE(std::equal(stolen.begin(), stolen.end(), BlocksAt(s, 2, 2).begin()));
  const bool freed = GENERATE(false, true);
  if (freed) REQUIRE(s.Delete({3}) == 1);

  SECTION("there is no mark, so there is no image") {
    s.KillAndStart();
    CHECK(s.counters().recovered_g2_chunks == (freed ? 0 : 1));
    CHECK(s.counters().recovery_dropped_g2_chunks == 0);
    CHECK(s.Where(3) == (freed ? "" : "2"));
  }
  SECTION("a mark of another placement does not fit it") {
    s.world.Kill();
    s.world.arena().live_marks()[2] = mark + 1;
    s.world.Start();
    s.Connect();
    CHECK(s.counters().recovery_dropped_g2_chunks == 1);
  }
  SECTION("the header is perfect: it is the mark that makes the difference") {
    if (!freed) return;
    s.world.Kill();
    s.world.arena().live_marks()[2] = mark;
    s.world.Start();
    s.Connect();
    CHECK(s.Get(2) == "hit");
    return;
  }
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "miss");
  s.store().CheckInvariants();
}

TEST_CASE("marks and headers that do not belong together are worth nothing") {
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1) == "stored");
  s.world.Kill();
  auto marks = s.world.arena().live_marks();
  SECTION("a header without a mark") {
    marks[0] = 0;
    s.world.Start();
    s.Connect();
    CHECK(s.counters().recovery_dropped_g2_chunks == 0);
    CHECK(s.Get(1) == "miss");
  }
  SECTION("a mark without a header") {
    marks[17] = marks[0];
    s.world.Start();
    s.Connect();
    CHECK(s.counters().recovery_dropped_g2_chunks == 1);
    CHECK(s.Get(1) == "hit");
  }
  SECTION("a whole image at another place than its own") {
    std::copy_n(BlocksAt(s, 0, 2).begin(), 2 * kBlockBytes, BlocksAt(s, 20, 2).begin());
    marks[20] = std::exchange(marks[0], 0);
    s.world.Start();
    s.Connect();
    CHECK(s.counters().recovery_dropped_g2_chunks == 1);
    CHECK(s.Get(1) == "miss");
  }
  s.store().CheckInvariants();
}

TEST_CASE("an image of another arena is not taken, whatever is marked") {
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1) == "stored");
  s.world.Kill();
  const SavedArena saved(s.world.arena());
  const bool other = GENERATE(false, true);
  s.world.LoseArena();
  s.world.Start();
  s.world.Kill();
  saved.PutBack(s.world.arena());
  if (other) s.world.arena().SetUuid(3);
  s.world.Start();
  s.Connect();
  CHECK(s.Get(1) == (other ? "miss" : "hit"));
}

TEST_CASE("what was deleted, cleared, evicted or never sealed does not come back") {
  StoreTester s(WarmWorld(false));
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(s.Put(i) == "stored");
  const LeaseId lease = s.Lookup({0}).lease;
  ChunkReader reader = s.Pin(1);
  Reservation open, loser;
  REQUIRE(s.Reserve(10, 4096, &open) == "reserved");
  REQUIRE(s.Reserve(11, 4096, &loser) == "reserved");
  REQUIRE(s.Put(11) == "stored");
  SECTION("deleted, while a lease and a reader keep the bytes") {
    REQUIRE(s.Delete({0, 1, 2}) == 3);
    CHECK(s.Get(0, lease) == "hit");
    REQUIRE(s.Seal(11, std::move(loser)) == "present");
  }
  SECTION("cleared") { REQUIRE(s.store().Clear(std::nullopt) == 5); }
  SECTION("evicted") {
    reader = ChunkReader();
    REQUIRE(s.Release(lease).ok());
    s.FloodG2();
    for (uint64_t i = 0; i < 4; ++i) REQUIRE(s.Where(i).empty());
  }
  const std::vector<uint64_t> marked = MarkedBlocks(s);
  const std::vector<std::string> before = {s.Where(0), s.Where(3), s.Where(10), s.Where(11)};
  reader = ChunkReader();
  loser.Abort();
  open.Abort();
  s.KillAndStart();
  CHECK(s.counters().recovered_g2_chunks == marked.size());
  CHECK(s.counters().recovery_dropped_g2_chunks == 0);
  const std::vector<std::string> after = {s.Where(0), s.Where(3), s.Where(10), s.Where(11)};
  CHECK(before == after);
  for (const uint64_t name : {0, 1, 2}) CHECK(s.Get(name) == "miss");
  s.store().CheckInvariants();
}

TEST_CASE(
    "a kill during puts, promotions, write-backs and verifications leaves only whole chunks") {
  uint64_t recovered = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions options = WarmWorld();
    options.seed = seed;
    StoreTester s(options);
    for (uint64_t i = 0; i < 6; ++i) REQUIRE(s.Put(i, 5000) == "stored");
    s.Settle();
    s.FloodG2();
    std::vector<ChunkReader> readers;
    for (uint64_t i = 0; i < 6; ++i) readers.push_back(s.Pin(i));  // from G3
    for (uint64_t i = 6; i < 9; ++i) s.Put(i, 5000);
    for (uint64_t i = 0; i < seed; ++i) s.world.RunOneAtRandom();
    readers.clear();
    s.KillAndStart();
    recovered += s.counters().recovered_g2_chunks;
    for (uint64_t i = 0; i < 9; ++i) readers.push_back(s.Pin(i));
    for (uint64_t i = 0; i < seed / 2; ++i) s.world.RunOneAtRandom();
    readers.clear();
    s.KillAndStart();
    s.store().CheckInvariants();
    for (uint64_t i = 0; i < 9; ++i) CHECK(s.Get(i) == "hit");
    s.Settle();
    s.store().CheckInvariants();
  }
  CHECK(recovered > 60 * 9);
}

TEST_CASE("the sweep verifies what nobody asks for, and has written back what is not in G3") {
  WorldOptions options = WarmWorld();
  options.store.dirty_budget_bytes = 4 * kBlockBytes;  // two chunks
  StoreTester s(options);
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  s.KillAndStart();
  CHECK(s.store().snapshot().dirty_chunks == 0);
  s.world.HoldIndex(true);
  s.Pass(std::chrono::milliseconds(500));
  CHECK(s.store().snapshot().dirty_chunks == 2);  // the budget is kept, and nothing given up
  s.world.HoldIndex(false);
  s.Settle();
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Where(i) == "23");
  CHECK(s.counters().write_backs == 10);
  CHECK(s.counters().write_backs_cancelled == 0);
  s.world.Kill();
  s.world.LoseArena();
  s.world.Start();
  s.Connect();
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Get(i) == "hit");
}

TEST_CASE("a drain leaves unverified chunks as they are, and they are there after it") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  s.KillAndStart();
  s.store().BeginDrain();
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().write_backs == 0);
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a recovered chunk is durable once it is verified and written") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(s.Put(2, 4096, {.no_g3 = true}) == "stored");
  s.world.Kill();
  Flip(BlocksAt(s, MarkedBlocks(s)[1] + 1)[7]);
  s.world.Start();
  s.Connect();
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Durable(2) == "NOT_FOUND");
  s.world.Kill();
  s.world.LoseArena();
  s.world.Start();
  s.Connect();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("recovered chunks are evicted like others, the one placed first goes first") {
  StoreTester s(WarmWorld(false));
  for (uint64_t i = 0; i < 32; ++i) REQUIRE(s.Put(i) == "stored");  // G2 is full
  REQUIRE(s.Delete({3}) == 1);
  REQUIRE(s.Put(100) == "stored");  // the youngest, in the middle
  s.KillAndStart();
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Put(200 + i) == "stored");
  for (uint64_t i = 0; i <= 10; ++i) CHECK(s.Where(i).empty());
  for (uint64_t i = 11; i < 32; ++i) CHECK(s.Where(i) == "2");
  CHECK(s.Where(100) == "2");
  // The order of placements also goes on over two starts.
  s.KillAndStart();
  for (uint64_t i = 0; i < 22; ++i) REQUIRE(s.Put(300 + i) == "stored");
  CHECK(s.Where(31).empty());
  CHECK(s.Where(100).empty());
  CHECK(s.Where(200) == "2");
  s.store().CheckInvariants();
}

TEST_CASE("another put under the key of a stale record wins over it") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  s.world.HoldIndex(true);  // the removal never reaches the index
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(s.Put(1, 9000) == "stored");
  s.KillAndStart();
  s.world.HoldIndex(false);
  CHECK(s.Where(1) == "2");
  CHECK(s.Get(1) == "hit");
  s.Settle();
  s.store().CheckInvariants();
  s.KillAndStart();
  CHECK(s.Where(1) == "23");
  CHECK(s.Get(1) == "hit");
}

namespace {

// Stores with other options, one after the other, over one arena and without devices.
struct BareStores {
  ManualClock clock;
  SeededRandom random{5};
  ManualExecutor executor;
  MemoryArena arena{BlockCount(64), BlockCount(16), true};
  std::unique_ptr<Store> store;

  void Start(const StoreOptions& options) {
    executor.Drop();
    store.reset();
    StoreDeps deps{.clock = &clock, .random = &random, .arena = &arena, .copy_executor = &executor};
    store = Store::Create(options, deps).value();
    store->CheckInvariants();
  }
  std::pair<SessionToken, NamespaceDigest> Connect(uint32_t tenant) {
    const auto session =
        store->OpenSession({.client_name = "test", .tenant = TenantId(tenant)}).value();
    const auto ns = store->OpenNamespace(session, {.model = "m", .tokens_per_chunk = 16}).value();
    return {session, ns};
  }
  bool Put(uint32_t tenant, uint64_t name) {
    const auto [session, ns] = Connect(tenant);
    auto reserved =
        store->Reserve(session, {.ns = ns, .key = MakeKey(name), .shape = {.payload_bytes = 4096}});
    if (reserved->outcome != ReserveResult::Outcome::kReserved) return false;
    reserved->reservation.Append(MakePayload(name, 1, 4096));
    return reserved->reservation.Seal({}).ok();
  }
  bool Present(uint32_t tenant, uint64_t name) {
    const auto [session, ns] = Connect(tenant);
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const std::vector<PartId> parts = {PartId(0)};
    return store->Lookup(session, {.chunks = {ns, keys, parts}})->g2_parts[0] != 0;
  }
};

StoreOptions Tenants(std::vector<uint64_t> segments) {
  StoreOptions options;
  for (size_t i = 0; i < segments.size(); ++i) {
    options.tenants.push_back({std::string(1, static_cast<char>('a' + i)), segments[i]});
  }
  return options;
}

}  // namespace

TEST_CASE("images over max_chunks are dropped at the start, and their space is free") {
  BareStores stores;
  stores.Start({});
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(stores.Put(0, i));
  stores.Start({.max_chunks = 4});
  CHECK(stores.store->snapshot().g2.chunks == 4);
  CHECK(stores.store->snapshot().g2.used_bytes == 8 * kBlockBytes);
  CHECK(stores.store->snapshot().counters.recovery_dropped_g2_chunks == 6);
}

TEST_CASE("every tenant finds its own chunks again, in its own segments") {
  BareStores stores;
  stores.Start(Tenants({1, 3}));
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(stores.Put(0, i));
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(stores.Put(1, i));
  stores.Start(Tenants({1, 3}));
  StoreSnapshot snapshot = stores.store->snapshot();
  CHECK(snapshot.tenants[0].g2.chunks == 8);
  CHECK(snapshot.tenants[1].g2.chunks == 5);
  CHECK(stores.Present(0, 7));
  CHECK_FALSE(stores.Present(1, 7));
  REQUIRE(stores.Put(0, 100));  // evicts one of its own
  CHECK(stores.store->snapshot().tenants[1].g2.chunks == 5);
  // Segments without a tenant: nothing in them is kept.
  stores.Start(Tenants({1}));
  snapshot = stores.store->snapshot();
  CHECK(snapshot.g2.chunks == 8);
  CHECK(snapshot.counters.recovery_dropped_g2_chunks == 5);
}

TEST_CASE("an image over whose blocks an older one is found again is left out") {
  StoreTester s(WarmWorld(false));
  REQUIRE(s.Put(1, 3 * kBlockBytes) == "stored");  // with its header four blocks
  const uint64_t old = OnlyBlock(s);
  const SavedArena saved(s.world.arena());
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(s.Put(2) == "stored");
  REQUIRE(s.Put(3) == "stored");
  REQUIRE(MarkedBlocks(s) == std::vector<uint64_t>{old, old + 2});
  REQUIRE(s.Delete({2}) == 1);
  s.world.Kill();
  std::copy_n(saved.bytes.begin() + static_cast<ptrdiff_t>(old * kBlockBytes), kBlockBytes,
              BlocksAt(s, old).begin());
  s.world.arena().live_marks()[old] = saved.marks[old];
  s.world.Start();
  s.Connect();
  s.store().CheckInvariants();
  CHECK(s.counters().recovery_dropped_g2_chunks == 1);
  CHECK(s.Get(3) == "miss");
  CHECK(s.Get(1) != "wrong");
}

}  // namespace kvkeep
