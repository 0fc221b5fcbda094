// Promotions: single flight, readiness piece by piece, damage on the device.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Room for a chunk of three pieces.
WorldOptions PieceWorld() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 2048;
  options.device_blocks = {4096};
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 4 * kMiB;
  options.store.max_leased_bytes = 8 * kMiB;
  return options;
}

// Notes which of `pieces` were reported ready so far.
struct Told {
  explicit Told(size_t pieces) : status(pieces) {}
  void Ask(ChunkReader& reader) {
    for (size_t i = 0; i < status.size(); ++i) {
      reader.WhenReady(i, 1, [this, i](absl::Status told) { status[i] = std::move(told); });
    }
  }
  size_t count() const {
    return static_cast<size_t>(
        std::count_if(status.begin(), status.end(), [](const auto& s) { return s.has_value(); }));
  }
  std::vector<std::optional<absl::Status>> status;
};

}  // namespace

TEST_CASE("two readers of a chunk in G3 share one promotion") {
  StoreTester s;
  PutIntoG3(s, 1, 4096);
  ChunkReader first = s.Pin(1), second = s.Pin(1);
  REQUIRE((first && second));
  CHECK(s.WaitFor(first, 0, 1) == "ok");
  CHECK(s.WaitFor(second, 0, 1) == "ok");
  CHECK(s.Bytes(1, second) == "hit");
  CHECK(s.counters().promotions == 1);
  CHECK(s.counters().promotions_shared == 1);
  CHECK(s.counters().read_g3_hits == 2);
  CHECK(s.store().snapshot().g2.chunks == 1);
}

TEST_CASE("a promotion takes the store's lock as often for eight pieces as for one") {
  constexpr uint64_t kBlocks = 4096;
  WorldOptions options = SmallWorld();
  options.arena_outlives = false;
  options.g2_blocks = options.g2_segment_blocks = kBlocks;
  options.device_blocks = {kBlocks};
  for (uint64_t* limit : {&options.store.dirty_budget_bytes, &options.store.max_reserved_bytes,
                          &options.store.max_leased_bytes}) {
    *limit = kBlocks * kBlockBytes;
  }
  std::vector<uint64_t> taken;
  for (const uint64_t pieces : {1, 8}) {
    StoreTester s(options);
    PutIntoG3(s, 1, pieces * kPieceBytes);
    ChunkReader reader = s.Pin(1);
    const uint64_t before = s.counters().lock_acquisitions;
    s.RunAll();
    taken.push_back(s.counters().lock_acquisitions - before);
    CHECK(s.Bytes(1, reader) == "hit");
    CHECK(s.counters().promotions == 1);
  }
  CHECK(taken[0] == taken[1]);
}

TEST_CASE("a read from G3 takes the store's lock when it begins, when it ends, and to let go") {
  StoreTester s(PieceWorld());
  PutIntoG3(s, 1, 3 * kPieceBytes);
  const auto takes = [&s] { return s.counters().lock_acquisitions; };
  const uint64_t before = takes();
  const uint64_t of_a_look = takes() - before;
  {
    ChunkReader reader = s.Pin(1);
    Told told(3);
    told.Ask(reader);
    s.world.executor().RunAll();
    s.RunAll();
    CHECK(told.count() == 3);
    CHECK(told.status[2]->ok());
    CHECK(reader.PieceChecksums().size() == 3);
  }
  CHECK(takes() - before == 3 + 2 * of_a_look);
}

TEST_CASE("pieces of a chunk in G2 are told ready without the store's lock") {
  StoreTester s(PieceWorld());
  REQUIRE(s.Put(1, 3 * kMiB) == "stored");
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  const auto takes = [&s] { return s.store().snapshot().lock_hold.count(); };
  const uint64_t before = takes();
  const uint64_t of_a_snapshot = takes() - before;
  Told told(3);
  told.Ask(reader);
  CHECK(told.count() == 3);
  CHECK(told.status[2]->ok());
  CHECK(takes() - before == 2 * of_a_snapshot);
  CHECK(s.Delete({1}) == 1);
  told.Ask(reader);  // it stays the same while it is held
  CHECK(told.status[0]->ok());
  CHECK(s.Bytes(1, reader) == "hit");
}

TEST_CASE("promotions count the runs of blocks that they read: neighbours in order are one") {
  StoreTester s;
  for (const uint64_t chunk : {1, 2, 3}) PutIntoG3(s, chunk, 4096);  // side by side on the device
  ChunkReader first = s.Pin(1), second = s.Pin(2);
  CHECK(s.counters().promotions == 2);
  CHECK(s.counters().promotion_runs == 1);
  StoreTester backwards;
  for (const uint64_t chunk : {1, 2, 3}) PutIntoG3(backwards, chunk, 4096);
  ChunkReader last = backwards.Pin(3), middle = backwards.Pin(2);
  CHECK(backwards.counters().promotions == 2);
  CHECK(backwards.counters().promotion_runs == 2);
}

TEST_CASE("each piece is told ready when it is, before the last one is read") {
  using Encryption = WorldOptions::Encryption;
  WorldOptions options = PieceWorld();
  options.encryption = GENERATE(as<Encryption>(), Encryption::kOff, Encryption::kOn);
  StoreTester s(options);
  PutIntoG3(s, 1, 2 * kMiB + 5);
  bool early = false;
  ChunkReader reader = s.Pin(1);
  Told told(3);
  told.Ask(reader);
  size_t last = 0;
  while (s.world.RunOneAtRandom()) {
    CHECK(told.count() >= last);
    last = told.count();
    if (last == 1 || last == 2) {
      early = true;
      CHECK(s.Where(1) == "3");  // no hit of G2 before it is whole
      for (size_t i = 0; i < 3; ++i) {
        if (!told.status[i].has_value()) continue;
        const size_t size = i < 2 ? kPieceBytes : 5;
        const auto bytes = reader.Payload(i * kPieceBytes, size);
        CHECK(Xxh3(bytes) == reader.PieceChecksums()[i]);
      }
    }
  }
  CHECK(early);
  CHECK(last == 3);
  CHECK(s.Where(1) == "23");
  CHECK(s.Bytes(1, reader) == "hit");
}

TEST_CASE("a range is told when all of it is ready, an empty one at once") {
  StoreTester s(PieceWorld());
  PutIntoG3(s, 1, 3 * kMiB);
  ChunkReader reader = s.Pin(1);
  bool none = false, all = false;
  reader.WhenReady(0, 0, [&](absl::Status status) { none = status.ok(); });
  reader.WhenReady(0, 3, [&](absl::Status status) { all = status.ok(); });
  CHECK(none);
  CHECK_FALSE(all);
  s.RunAll();
  CHECK(all);
}

TEST_CASE("what is being read when its device goes away is there when it is back") {
  StoreTester s;
  PutIntoG3(s, 1, 20'000);
  s.world.SetGone(0, true);
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  CHECK(s.WaitFor(reader, 0, 1) == "away");
  CHECK(s.WaitFor(reader, 0, 1) == "away");  // a reader that asks after its end, too
  s.store().CheckInvariants();
  s.world.SetGone(0, false);
  s.Pass(std::chrono::seconds(31));
  CHECK(s.Get(1) == "hit");
  reader = {};
  CHECK(s.Get(1) == "hit");
  s.store().CheckInvariants();
}

TEST_CASE("a read that fails once takes no chunk: the next one finds it") {
  StoreTester s;
  PutIntoG3(s, 1, 4096);
  s.world.device().set_options({.read_error = 1});
  CHECK(s.Get(1) == "away");
  CHECK(s.Where(1) == "3");
  CHECK(s.counters().promotions_failed == 1);
  CHECK(s.counters().corrupt_chunks == 0);  // the device, not the bytes
  CHECK(s.counters().suspect_reads == 1);
  s.world.device().set_options({});
  SECTION("asked for") {
    CHECK(s.Get(1) == "hit");
  }
  SECTION("by the scrub, which has no rate") {
    s.Pass(std::chrono::seconds(11));
    CHECK(s.counters().suspect_rereads == 1);
    CHECK(s.Where(1) == "3");
  }
  SECTION("after a restart") {
    s.KillAndStart();
    CHECK(s.Get(1) == "hit");
    return;
  }
  CHECK(s.counters().suspects_cleared == 1);
  CHECK(s.counters().unreadable_chunks == 0);
  s.Pass(std::chrono::seconds(60));
  CHECK(s.counters().suspect_rereads <= 1);  // it is none any more
  s.store().CheckInvariants();
}

TEST_CASE("a chunk that nobody can read for long is given up, and put again") {
  StoreTester s;
  PutIntoG3(s, 1, 4096);
  s.world.device().set_options({.read_error = 1});
  CHECK(s.Get(1) == "away");
  CHECK(s.Get(1) == "away");  // so soon that it counts as one failure with the first
  s.Pass(std::chrono::seconds(20));
  CHECK(s.counters().unreadable_chunks == 0);
  s.Pass(std::chrono::seconds(300));
  CHECK(s.counters().unreadable_chunks == 1);
  CHECK(s.counters().suspect_rereads >= 3);
  s.world.device().set_options({});
  s.Pass(std::chrono::seconds(60));
  CHECK(s.store().snapshot().g3.chunks == 0);
  CHECK(s.Put(1) == "stored");
  CHECK(s.Get(1) == "hit");
  s.store().CheckInvariants();
}

TEST_CASE("bytes damaged on the device are never served") {
  const auto damage = GENERATE(as<std::string>{}, "header", "payload", "tail", "zeroed");
  CAPTURE(damage);
  StoreTester s;
  REQUIRE(s.Put(1, 8192, {.tail_bytes = 100}) == "stored");
  s.Settle();
  s.KillAndStart();
  const auto image = s.OnDisk(s.DeviceBlock(1), 4);
  if (damage == "header") image[200] ^= std::byte{1};
  if (damage == "payload") image[4096 + 8191] ^= std::byte{1};
  if (damage == "tail") image[4096 + 8192 + 99] ^= std::byte{1};
  if (damage == "zeroed") std::fill(image.begin(), image.end(), std::byte{0});
  CHECK(s.Get(1) == "damaged");
  CHECK(s.counters().corrupt_chunks == 1);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Put(1, 8192) == "stored");
  CHECK(s.Get(1) == "hit");
  s.Settle();
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a valid image of another chunk or placement is not taken for this one") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  s.KillAndStart();
  const auto first = s.OnDisk(s.DeviceBlock(1), 2);
  const auto second = s.OnDisk(s.DeviceBlock(2), 2);
  SECTION("another chunk's image, copied over it") {
    std::copy(second.begin(), second.end(), first.begin());
  }
  SECTION("its own image as it was before it was put anew") {
    const std::vector<std::byte> old(first.begin(), first.end());
    const uint64_t block = s.DeviceBlock(1);
    REQUIRE(s.Delete({1}) == 1);
    s.Settle();
    REQUIRE(s.Put(1) == "stored");
    s.Settle();
    REQUIRE(s.DeviceBlock(1) == block);
    s.KillAndStart();
    std::copy(old.begin(), old.end(), first.begin());
  }
  CHECK(s.Get(1) == "damaged");
  CHECK(s.counters().corrupt_chunks == 1);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("when one piece turns out damaged the others' readers are told, and nothing is kept") {
  StoreTester s(PieceWorld());
  PutIntoG3(s, 1, 3 * kMiB);
  const uint64_t block = s.DeviceBlock(1);
  s.OnDisk(block + 1 + 256, 1)[7] ^= std::byte{1};  // in the second piece
  ChunkReader reader = s.Pin(1);
  Told told(3);
  told.Ask(reader);
  s.RunAll();
  REQUIRE(told.count() == 3);
  CHECK(told.status[1]->code() == absl::StatusCode::kDataLoss);
  // Asked afterwards, the answer is the same.
  CHECK(s.WaitFor(reader, 1, 1) == "damaged");
  CHECK(s.Get(1) == "miss");
  CHECK(s.store().snapshot().g2.used_bytes == 769 * kBlockBytes);  // pinned yet
  reader = ChunkReader();
  s.Settle();
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  CHECK(s.store().snapshot().g3.chunks == 0);
}

TEST_CASE("a chunk that fails after its first piece never shows another chunk's checksums") {
  StoreTester s(PieceWorld());
  PutIntoG3(s, 1, 2 * kMiB);
  // Leaves its header page at the promotion's later place.
  REQUIRE(s.Put(2, 2 * kMiB, {.no_g3 = true}) == "stored");
  REQUIRE(s.Delete({2}) == 1);
  s.OnDisk(s.DeviceBlock(1) + 1 + 256, 1)[7] ^= std::byte{1};
  ChunkReader reader = s.Pin(1);
  REQUIRE(s.WaitFor(reader, 0, 2) == "damaged");
  CHECK(reader.PieceChecksums().empty());
}

TEST_CASE("a chunk that is deleted while it is promoted is read to its end") {
  StoreTester s;
  PutIntoG3(s, 1, 4096);
  ChunkReader reader = s.Pin(1);
  REQUIRE(s.Delete({1}) == 1);
  CHECK(s.Where(1).empty());
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  CHECK(s.Bytes(1, reader) == "hit");
  reader = ChunkReader();
  s.Settle();
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  CHECK(s.store().snapshot().g3.used_bytes == kBlockBytes);
}

TEST_CASE("reads in flight of a device stay below their limit, and all of them end") {
  WorldOptions options = SmallWorld();
  options.store.max_device_reads_in_flight_bytes = 4 * kBlockBytes;
  StoreTester s(options);
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.KillAndStart();
  const std::vector<ChunkKey> keys = {MakeKey(0), MakeKey(1), MakeKey(2), MakeKey(3), MakeKey(4),
                                      MakeKey(5), MakeKey(6), MakeKey(7), MakeKey(8), MakeKey(9)};
  const std::vector<PartId> parts = {PartId(0)};
  const PrefetchResult started = s.store().Prefetch(s.session, {s.ns, keys, parts}).value();
  CHECK(started.started_chunks == 10);
  CHECK(s.world.executor().size() <= 4);  // two chunks: a header and a piece each
  s.RunAll();
  CHECK(s.store().Prefetch(s.session, {s.ns, keys, parts})->ready_chunks == 10);
}

TEST_CASE("what one session asks for of a device waits for a turn of another, not for all of it") {
  constexpr uint64_t kLong = 24, kShort = 100;  // chunks of a piece each: three turns
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 8192;
  options.device_blocks = {8192};
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 32 * kMiB;
  options.store.max_leased_bytes = 32 * kMiB;
  options.store.max_device_reads_in_flight_bytes = 1;  // one chunk at a time
  StoreTester s(options);
  std::vector<ChunkKey> keys;
  const std::vector<PartId> parts = {PartId(0)};
  for (uint64_t i = 0; i < kLong; ++i) {
    REQUIRE(s.Put(i, kPieceBytes) == "stored");
    keys.push_back(MakeKey(i));
  }
  REQUIRE(s.Put(kShort, kPieceBytes) == "stored");
  s.Settle();
  s.KillAndStart();
  const SessionToken greedy = s.session;
  REQUIRE(s.store().Prefetch(greedy, {s.ns, keys, parts})->started_chunks == kLong);
  const auto late = std::chrono::nanoseconds(s.Lookup({kShort}, LeaseMode::kNone).promotion_time);
  s.Connect();
  // A turn of the other's, its own chunk, and the current read: not all 25.
  const auto fair = s.Lookup({kShort}, LeaseMode::kNone).promotion_time;
  CHECK((fair > late * 9 / 25 && fair < late * 11 / 25));
  ChunkReader reader = s.Pin(kShort);
  REQUIRE(reader);
  CHECK(s.Lookup({kShort}, LeaseMode::kNone).promotion_time == fair);  // asked for: no later
  Told told(1);
  told.Ask(reader);
  while (told.count() == 0) REQUIRE(s.world.RunOneAtRandom());
  const uint64_t ready = s.store().Prefetch(greedy, {s.ns, keys, parts})->ready_chunks;
  CHECK(ready >= 7);  // a turn, except for the chunk that was being read when the other came
  CHECK(ready <= 9);
  s.RunAll();
  CHECK(s.store().Prefetch(greedy, {s.ns, keys, parts})->ready_chunks == kLong);
  CHECK(s.Bytes(kShort, reader) == "hit");
}

TEST_CASE("a device that fails again and again is left alone for a while, then tried again") {
  StoreTester s;
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.KillAndStart();
  s.world.device().set_options({.read_error = 1});
  // Counted once a chunk, although header and piece both fail.
  CHECK(s.Get(0) == "away");
  CHECK(s.Get(1) == "away");
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kDegraded);
  CHECK(s.Get(3) == "away");
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOffline);
  CHECK(s.Get(2) == "miss");
  CHECK(s.Where(2).empty());
  s.world.device().set_options({});
  s.Pass(std::chrono::seconds(31));
  for (uint64_t i = 0; i < 4; ++i) CHECK(s.Get(i) == "hit");
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
}

TEST_CASE("a device that answers nothing is shown and left alone until it does") {
  StoreTester s;
  for (uint64_t i = 0; i < 3; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.KillAndStart();
  const auto wait = [&s](int ticks) {  // nothing runs meanwhile
    for (int i = 0; i < ticks; ++i) {
      s.world.clock().Advance(std::chrono::milliseconds(100));
      s.store().Tick();
    }
  };
  { const ChunkReader first = s.Pin(2); }
  wait(1);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);  // it had no time yet
  s.Settle();
  wait(100);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);  // it has nothing to answer
  ChunkReader reader = s.Pin(0);
  wait(49);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  CHECK(s.Where(1) == "3");
  wait(2);
  const DeviceSnapshot shown = s.store().snapshot().devices[0];
  CHECK(shown.state == DeviceState::kOffline);
  CHECK(absl::StrContains(shown.message, "does not answer"));
  CHECK(s.counters().device_silences == 1);
  CHECK(s.Where(1).empty());
  CHECK(s.WaitFor(reader, 0, 1) == "ok");  // it answers: the awaited chunk is whole
  wait(1);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a time in which nobody looked is no silence of a device") {
  StoreTester s;
  REQUIRE(s.Put(0) == "stored");
  s.Settle();
  // A long start: the first look finds a read under way.
  s.KillAndStart();
  s.world.clock().Advance(std::chrono::seconds(20));
  ChunkReader reader = s.Pin(0);
  s.store().Tick();
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  // And a pause, as of a stopped process or machine.
  s.world.clock().Advance(std::chrono::minutes(10));
  s.store().Tick();
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  CHECK(s.counters().device_silences == 0);
}

}  // namespace kvkeep
