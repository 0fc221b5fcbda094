// An earlier process's chunks in G2: threads of the start share them out, and the sweep verifies
// them behind all other work.
#include <atomic>
#include <catch2/catch.hpp>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tiers/base/check.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

constexpr uint64_t kLeft = 30'000;  // two blocks each: several threads have something to look at

// A store over the arena, with a session and a namespace; only its start has threads.
struct LeftG2 {
  LeftG2(MemoryArena* arena, int threads) {
    StoreOptions options;
    options.g2_policy = "lru";
    options.max_reserved_bytes = options.max_leased_bytes = arena->capacity_bytes();
    store = Store::Create(options, {.clock = RealClock(),
                                    .random = &random,
                                    .arena = arena,
                                    .copy_executor = &executor,
                                    .background_executor = &background,
                                    .recovered_images = &looked_at,
                                    .recovery_threads = threads})
                .value();
    session = store->OpenSession({.client_name = "test"}).value();
    ns = store->OpenNamespace(session, {.model = "m", .tokens_per_chunk = 16}).value();
  }
  void Put(uint64_t name) {
    const PutRequest put{.ns = ns, .key = MakeKey(name), .shape = {.payload_bytes = 1}};
    Reservation reservation = std::move(store->Reserve(session, put).value().reservation);
    reservation.Append(std::array{std::byte{1}});
    KVKEEP_CHECK(reservation.Seal({}).ok());
  }
  uint64_t Present(uint64_t first, uint64_t end) {
    uint64_t present = 0;
    const std::vector<PartId> parts = {PartId(0)};
    for (uint64_t name = first; name < end; ++name) {
      const std::vector<ChunkKey> keys = {MakeKey(name)};
      present += store->Lookup(session, {.chunks = {ns, keys, parts}}).value().leading_keys;
    }
    return present;
  }

  SeededRandom random{1};
  ManualExecutor executor, background;
  std::atomic<uint64_t> looked_at = 0;
  std::unique_ptr<Store> store;
  SessionToken session;
  NamespaceDigest ns;
};

}  // namespace

TEST_CASE("many threads of a start find the same chunks as one, in the same order of eviction") {
  for (const int threads : {4, 1}) {
    MemoryArena arena(BlockCount(2 * kLeft), BlockCount(16'384), true);
    {
      LeftG2 before(&arena, 1);
      for (uint64_t name = kLeft; name-- > 0;) before.Put(name);
    }
    uint64_t damaged = 0;
    for (uint64_t block = 0; block < arena.capacity_blocks().value(); block += 6002, ++damaged) {
      REQUIRE(arena.live_marks()[block] != 0);
      arena.Memory({BlockNumber(block), BlockCount(1)})[200] ^= std::byte{1};
    }
    LeftG2 after(&arena, threads);
    CHECK(after.looked_at == kLeft);
    const StoreCounters counters = after.store->snapshot().counters;
    CHECK(counters.recovered_g2_chunks == kLeft - damaged);
    CHECK(counters.recovery_dropped_g2_chunks == damaged);
    CHECK(arena.live_marks()[6002] == 0);
    after.store->CheckInvariants();
    // The oldest go first. They have the highest names, and lie in the shortest segment, the last.
    for (uint64_t i = 0; i < damaged + 100; ++i) after.Put(1'000'000 + i);
    CHECK(after.store->snapshot().counters.g2_evictions == 100);
    CHECK(after.Present(kLeft - 100, kLeft) == 0);
    CHECK(after.Present(0, kLeft - 100) == kLeft - 100 - damaged);
    CHECK(after.executor.idle());
  }
}

TEST_CASE(
    "the sweep has much under way, behind all other work; what somebody waits for leaves it") {
  constexpr uint64_t kFew = 40;
  MemoryArena arena(BlockCount(2 * kFew), BlockCount(2 * kFew), true);
  {
    LeftG2 before(&arena, 1);
    for (uint64_t name = 0; name < kFew; ++name) before.Put(name);
  }
  LeftG2 after(&arena, 1);
  for (int tick = 0; tick < 10; ++tick) CHECK_FALSE(after.store->Tick());
  CHECK(after.background.size() == 16);
  CHECK(after.executor.idle());

  // The youngest is the first of the sweep.
  ChunkReader reader = std::move(
      after.store->Read(after.session, {after.ns, MakeKey(kFew - 1), PartId(0)}, LeaseId(0), false)
          ->reader);
  absl::Status told = absl::UnknownError("not told");
  reader.WhenReady(0, 1, [&told](absl::Status status) { told = std::move(status); });
  after.background.RunOne();  // its header, which was posted before
  CHECK(after.executor.size() == 1);
  after.executor.RunAll();
  CHECK(told.ok());
  // A chunk that the sweep has not reached yet.
  ChunkReader other = std::move(
      after.store->Read(after.session, {after.ns, MakeKey(0), PartId(0)}, LeaseId(0), false)
          ->reader);
  CHECK(after.executor.size() == 1);
  after.executor.RunAll();
  after.background.RunAll();
  CHECK(after.executor.idle());
  while (!after.store->Tick()) after.background.RunAll();
  CHECK(after.store->snapshot().counters.corrupt_chunks == 0);
  for (uint64_t name = 0; name < kFew; ++name) {
    const auto read =
        after.store->Read(after.session, {after.ns, MakeKey(name), PartId(0)}, LeaseId(0), false);
    CHECK(read->outcome == ReadOutcome::kHit);
  }
  CHECK(after.executor.idle());  // all were verified
}

}  // namespace kvkeep
