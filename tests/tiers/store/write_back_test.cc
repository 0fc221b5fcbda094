// Write-back, the dirty budget, space in G3, durability.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

TEST_CASE("over the dirty budget newcomers stay unbacked and evictable, durable ones are written") {
  WorldOptions options = SmallWorld();
  options.store.dirty_budget_bytes = 4 * kBlockBytes;
  StoreTester s(options);
  s.world.HoldIndex(true);  // nothing becomes clean
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2) == "stored");
  REQUIRE(s.Put(3) == "stored");
  CHECK(s.store().snapshot().dirty_chunks == 2);
  CHECK(s.store().snapshot().g2.dirty_bytes == 4 * kBlockBytes);
  CHECK(s.counters().write_backs_cancelled == 1);
  REQUIRE(s.Put(4, 4096, {.durable = true}) == "stored");
  CHECK(s.store().snapshot().dirty_chunks == 3);
  s.FloodG2();
  CHECK(s.Where(3).empty());
  CHECK(s.counters().unbacked_evictions > 0);
  for (const uint64_t i : {1, 2, 4}) CHECK(s.Where(i) == "2");  // dirty: they stay
  s.world.HoldIndex(false);
  s.Settle();
  for (const uint64_t i : {1, 2, 4}) CHECK(s.Where(i) == "23");
  CHECK(s.store().snapshot().g2.dirty_bytes == 0);
}

TEST_CASE("what a burst has over the dirty budget is written when there is room, in its order") {
  WorldOptions options = SmallWorld();
  options.store.dirty_budget_bytes = 8 * kBlockBytes;
  StoreTester s(options);
  for (uint64_t i = 0; i < 28; ++i) REQUIRE(s.Put(i) == "stored");
  TierSnapshot g2 = s.store().snapshot().g2;
  CHECK(g2.dirty_bytes == 8 * kBlockBytes);
  CHECK(g2.unbacked_chunks == 24);
  CHECK(g2.waiting_chunks == 24);
  CHECK(g2.waiting_bytes == 48 * kBlockBytes);
  s.store().CheckInvariants();
  while (s.world.RunOneAtRandom()) {
    s.store().CheckInvariants();
    CHECK(s.store().snapshot().g2.dirty_bytes <= 8 * kBlockBytes);
    const uint64_t stored = s.store().snapshot().g3.chunks;
    for (uint64_t i = stored + 4; i < 28; ++i) CHECK(s.Where(i) == "2");  // four are under way
  }
  CHECK(s.store().snapshot().g3.chunks == 28);  // and not a tick went by
  g2 = s.store().snapshot().g2;
  CHECK(g2.unbacked_chunks == 0);
  CHECK(g2.waiting_bytes == 0);
  s.Settle();
  s.KillAndStart();
  for (uint64_t i = 0; i < 28; ++i) CHECK(s.Get(i) == "hit");
}

TEST_CASE("what waits for the dirty budget is evicted like any other, and then waits no more") {
  WorldOptions options = SmallWorld();
  options.store.dirty_budget_bytes = 4 * kBlockBytes;
  StoreTester s(options);
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();  // hot, clean, and stays so
  s.world.HoldIndex(true);
  for (uint64_t i = 100; i < 200; ++i) {
    s.Touch({1});
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
    CHECK(s.store().snapshot().g2.dirty_bytes <= 4 * kBlockBytes);
    s.store().CheckInvariants();
  }
  CHECK(s.Where(1) == "23");
  CHECK(s.store().snapshot().g2.waiting_chunks == 29);  // of 32: 1, and two that are dirty
  REQUIRE(s.Delete({199}) == 1);
  CHECK(s.store().snapshot().g2.waiting_chunks == 28);
  s.store().Clear(std::nullopt);
  CHECK(s.store().snapshot().g2.waiting_chunks == 0);
  s.world.HoldIndex(false);
  s.Settle();
  s.store().CheckInvariants();
  CHECK(s.store().snapshot().g3.chunks == 0);
}

TEST_CASE("a drain writes what waits, whatever the budget") {
  WorldOptions options = SmallWorld();
  options.store.dirty_budget_bytes = 4 * kBlockBytes;
  options.hold_work = 1;
  StoreTester s(options);
  s.world.HoldIndex(true);
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(s.Put(i) == "stored");
  s.RunAll();
  CHECK(s.store().snapshot().g2.waiting_chunks == 18);
  s.store().BeginDrain();
  CHECK(s.store().snapshot().dirty_chunks == 20);
  CHECK(s.store().snapshot().g2.waiting_chunks == 0);
  s.world.HoldIndex(false);
  s.Settle();
  for (uint64_t i = 0; i < 20; ++i) CHECK(s.Where(i) == "23");
}

TEST_CASE("what came while no device took writes is written when one does again") {
  StoreTester s;
  s.RunAll();  // the sync of the start
  s.world.SetGone(0, true);
  for (uint64_t i = 0; i < 20; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kReadOnly);
  CHECK(s.store().snapshot().dirty_chunks == 0);
  CHECK(s.store().snapshot().g2.waiting_chunks == 20);
  s.Pass(std::chrono::seconds(10));
  CHECK(s.counters().write_backs_failed == 3);  // not tried while it is left alone
  s.world.SetGone(0, false);
  s.Pass(std::chrono::seconds(40));
  for (uint64_t i = 0; i < 20; ++i) CHECK(s.Where(i) == "23");
}

TEST_CASE("what the admission does not want does not wait") {
  WorldOptions options = SmallWorld();
  options.store.dirty_budget_bytes = 4 * kBlockBytes;
  options.store.g3_admission = "second_use";
  StoreTester s(options);
  s.world.HoldIndex(true);
  for (uint64_t i = 0; i < 4; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.Touch({i});  // offered twice: two of them are dirty, the others over the budget
  }
  REQUIRE(s.Put(10) == "stored");
  CHECK(s.store().snapshot().dirty_chunks == 2);
  CHECK(s.store().snapshot().g2.waiting_chunks == 3);
  CHECK(s.store().snapshot().g2.unbacked_chunks == 3);
  s.world.HoldIndex(false);
  s.Pass(std::chrono::seconds(2));
  CHECK(s.store().snapshot().g2.waiting_chunks == 0);
  CHECK(s.Where(1) == "23");
  CHECK(s.Where(10) == "2");  // offered once
  CHECK(s.store().snapshot().g2.unbacked_chunks >= 1);
}

TEST_CASE("a chunk is seen in G3 only after its index record was committed") {
  StoreTester s;
  s.world.HoldIndex(true);
  REQUIRE(s.Put(1) == "stored");
  s.RunAll();
  CHECK(s.Where(1) == "2");
  s.FloodG2();
  CHECK(s.Where(1) == "2");
  s.world.HoldIndex(false);
  s.RunAll();
  CHECK(s.Where(1) == "23");
}

TEST_CASE("extents of G3 are reused only after the removing batch was committed") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  const uint64_t block = s.DeviceBlock(1);
  const uint64_t used = s.store().snapshot().g3.used_bytes;
  s.world.HoldIndex(true);
  REQUIRE(s.Delete({1}) == 1);
  s.RunAll();
  CHECK(s.store().snapshot().g3.used_bytes == used);
  const auto image = s.OnDisk(block, 2);
  const std::vector<std::byte> before(image.begin(), image.end());
  for (uint64_t i = 10; i < 20; ++i) REQUIRE(s.Put(i) == "stored");
  s.RunAll();  // written, not committed
  CHECK(std::equal(before.begin(), before.end(), image.begin()));
  // Killed now, the delete is undone, and the bytes are still there.
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("a full device turns over: a free reserve is kept and new chunks replace old ones") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {101};  // 50 chunks of this size and the label
  options.store.max_device_writes_in_flight_bytes = 8 * kBlockBytes;
  StoreTester s(options);
  for (uint64_t i = 0; i < 200; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
    s.store().CheckInvariants();
    CHECK(s.store().snapshot().g3.used_bytes <= 101 * kBlockBytes);
  }
  s.Settle();
  CHECK(s.counters().write_backs == 200);
  CHECK(s.counters().g3_evictions > 100);
  // The bytes that may be in flight are kept free.
  CHECK(s.store().snapshot().g3.used_bytes <= (101 - 8) * kBlockBytes);
  s.KillAndStart();
  CHECK(s.Get(199) == "hit");
  CHECK(s.Get(0) == "miss");
}

TEST_CASE("a chunk too large for the device stays unbacked, and the queue goes on") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {20};
  StoreTester s(options);
  REQUIRE(s.Put(1, 30 * 4096) == "stored");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(s.Where(2) == "23");
}

TEST_CASE("what is written is not thrown away for an index that stalls") {
  StoreTester s;
  s.world.index().SetFaults({.commit_refused = 1});
  for (uint64_t i = 1; i <= 5; ++i) REQUIRE(s.Put(i) == "stored");
  std::string durable;
  s.WhenDurable(2, &durable);
  s.Pass(std::chrono::seconds(10));
  CHECK(durable == "waiting");
  CHECK(s.counters().index_commit_failures > 5);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
  REQUIRE(s.Delete({3}) == 1);
  s.world.index().SetFaults({});
  s.Pass(std::chrono::seconds(3));
  CHECK(durable == "ok");
  for (const uint64_t i : {1, 2, 4, 5}) CHECK(s.Where(i) == "23");
  CHECK_FALSE(s.world.index().Find(s.Id(3)).has_value());
  CHECK(s.counters().write_backs_failed == 0);
  CHECK(s.counters().write_backs == 4);
}

TEST_CASE("an index that refuses for long leaves chunks unbacked, and all is tried again") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.world.index().SetFaults({.commit_refused = 1});
  REQUIRE(s.Put(2) == "stored");
  std::string durable;
  s.WhenDurable(2, &durable);
  REQUIRE(s.Delete({1}) == 1);
  s.Pass(std::chrono::seconds(35));
  CHECK(durable == "away");
  CHECK(s.Where(2) == "2");
  CHECK(s.counters().index_commit_failures > 0);
  CHECK(s.store().snapshot().g3.used_bytes > kBlockBytes);  // of the deleted one
  s.world.index().SetFaults({});
  s.Pass(std::chrono::seconds(40));
  CHECK(s.store().snapshot().g3.used_bytes == 3 * kBlockBytes);  // the label and the other one
  CHECK(s.Where(2) == "23");
  CHECK(s.Durable(2) == "ok");
  s.KillAndStart();
  CHECK(s.Where(1).empty());
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("a failed write leaves the chunk unbacked and gives its G3 space back") {
  StoreTester s;
  s.world.device().set_options({.write_error = 1});
  REQUIRE(s.Put(1) == "stored");
  std::string durable;
  s.WhenDurable(1, &durable);
  s.Settle();
  CHECK(durable == "damaged");
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().write_backs_failed == 1);
  CHECK(s.store().snapshot().g3.used_bytes == kBlockBytes);
}

TEST_CASE(
    "a device that fails writes becomes read-only, what is queued is given up, later retried") {
  WorldOptions options = SmallWorld();
  options.store.max_device_writes_in_flight_bytes = 2 * kBlockBytes;  // one at a time
  StoreTester s(options);
  s.world.device().set_options({.write_error = 1});
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kReadOnly);
  CHECK(s.store().snapshot().dirty_chunks == 0);
  CHECK(s.Durable(0) == "away");
  s.world.device().set_options({});
  s.Pass(std::chrono::seconds(31));
  CHECK(s.Durable(0) == "ok");
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
}

TEST_CASE("a failed sync makes the device read-only for good and is told to all who wait") {
  StoreTester s;
  s.world.index().SetFaults({.sync_error = 1});
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  CHECK(s.Durable(1) == "away");
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kReadOnly);
  CHECK(s.counters().sync_failures == 1);
  s.world.index().SetFaults({});
  s.Pass(std::chrono::seconds(60));
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kReadOnly);
  CHECK(s.Durable(1) == "away");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  CHECK(s.Where(2) == "2");
  CHECK(s.Get(1) == "hit");
  std::string synced = "waiting";
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  s.RunAll();
  CHECK(synced == "failed");
  s.KillAndStart();
  s.RunAll();  // no sync ever worked: headers are read first
  CHECK(s.Get(1) == "hit");
  CHECK(s.Durable(1) == "ok");
}

TEST_CASE("WhenDurable of every state of a chunk answers") {
  StoreTester s;
  CHECK(s.Durable(9) == "NOT_FOUND");
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  CHECK(s.Where(1) == "2");
  CHECK(s.Durable(1) == "ok");  // unbacked: it is written now
  CHECK(s.Where(1) == "23");
  CHECK(s.Durable(1) == "ok");  // at once
  std::string answer;
  s.WhenDurable(1, &answer);
  CHECK(answer == "ok");

  REQUIRE(s.Put(2) == "stored");
  s.WhenDurable(2, &answer);
  CHECK(answer == "waiting");
  REQUIRE(s.Delete({2}) == 1);
  CHECK(answer == "NOT_FOUND");
  s.Settle();
  CHECK(s.store().snapshot().g3.chunks == 1);
}

TEST_CASE("a sync vouches for no batch that was under way when it began") {
  StoreTester s;
  s.world.HoldIndex(true);
  REQUIRE(s.Put(1) == "stored");
  s.RunAll();
  std::string synced = "waiting";
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  s.RunAll();
  REQUIRE(synced == "ok");
  s.world.HoldIndex(false);
  s.RunAll();
  REQUIRE(s.Where(1) == "23");
  std::string durable;
  s.WhenDurable(1, &durable);
  CHECK(durable == "waiting");
  s.RunAll();
  CHECK(durable == "ok");
}

TEST_CASE("without devices nothing is durable, and the rest works") {
  WorldOptions options = SmallWorld();
  options.device_blocks.clear();
  StoreTester s(options);
  REQUIRE(s.Put(1) == "stored");
  CHECK(s.Durable(1) == "away");
  CHECK(s.Get(1) == "hit");
  s.FloodG2();
  CHECK(s.Get(1) == "miss");
  std::string synced = "waiting";
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  CHECK(synced == "ok");
}

TEST_CASE("what was acknowledged as durable survives a power cut") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = SmallWorld();
    options.seed = seed;
    StoreTester s(options);
    for (uint64_t i = 0; i < 5; ++i) REQUIRE(s.Put(i) == "stored");
    REQUIRE(s.Durable(3) == "ok");
    REQUIRE(s.Put(6) == "stored");
    s.RunAll();
    s.PowerCutAndStart();
    s.RunAll();
    CHECK(s.Get(3) == "hit");
    // The other one's header may have arrived without its payload: never wrong bytes.
    const std::string other = s.Get(6);
    INFO("seed " << seed << ": " << other);
    CHECK((other == "hit" || other == "miss" || other == "damaged"));
    if (other != "hit") CHECK(s.Get(6) == "miss");
  }
}

TEST_CASE("a call ends while reads and writes wait for stuck ones, however short the holds") {
  WorldOptions options = SmallWorld();
  options.hold_work = 1;
  options.store.max_device_reads_in_flight_bytes = 1;  // one at a time
  options.store.max_device_writes_in_flight_bytes = 1;
  StoreTester s(options);
  for (uint64_t i = 1; i <= 3; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.KillAndStart();
  s.world.device().set_options({.stuck = 1});
  ChunkReader first = s.Pin(1), second = s.Pin(2);
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE(s.Put(4) == "stored");
  REQUIRE(s.Put(5) == "stored");
  s.RunAll();  // one of each two is stuck, the other waits for it
  CHECK(s.Delete({3}) == 1);
  s.world.device().set_options({});
  s.Settle();
  CHECK(s.Where(5) == "23");
  CHECK(s.WaitFor(second, 0, 1) == "ok");
}

TEST_CASE("void entries do not pile up in the queue of a device that is stuck") {
  WorldOptions options = SmallWorld();
  options.store.max_device_writes_in_flight_bytes = 2 * kBlockBytes;
  StoreTester s(options);
  // Nothing runs, so the first write is in flight and all others wait behind it.
  for (uint64_t i = 0; i < 10'000; ++i) {
    REQUIRE(s.Put(i) == "stored");
    REQUIRE(s.Delete({i}) == 1);
  }
  CHECK(s.store().snapshot().devices[0].queued_writes <= 200);
  s.Settle();
  CHECK(s.store().snapshot().g3.chunks == 0);
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  CHECK(s.Where(1) == "23");
}

TEST_CASE("the age of the oldest dirty chunk is told, and of none when all is written") {
  StoreTester s;
  const auto age = [&] { return s.store().snapshot().oldest_dirty_age; };
  CHECK(age().count() == 0);
  s.world.HoldIndex(true);
  REQUIRE(s.Put(1) == "stored");
  s.world.clock().Advance(std::chrono::seconds(2));
  REQUIRE(s.Put(2) == "stored");
  s.world.clock().Advance(std::chrono::seconds(1));
  CHECK(age() == std::chrono::seconds(3));
  s.store().CheckInvariants();
  s.world.HoldIndex(false);
  s.Settle();
  CHECK(s.store().snapshot().dirty_chunks == 0);
  CHECK(age().count() == 0);
  s.store().CheckInvariants();
}

TEST_CASE("an index that takes nothing keeps nothing of G2 either") {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 2048;
  StoreTester s(options);
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.world.HoldIndex(true);
  s.Delete({1});  // its removal is before all adds
  s.RunAll();
  for (uint64_t i = 10; i < 110; ++i) REQUIRE(s.Put(i) == "stored");
  s.RunAll();
  REQUIRE(s.store().snapshot().dirty_chunks > 20);
  s.world.index().SetFaults({.commit_error = 1});
  s.world.HoldIndex(false);
  s.Pass(std::chrono::seconds(4));
  CHECK(s.store().snapshot().dirty_chunks == 0);
}

}  // namespace kvkeep
