// Devices that join while a store serves.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Two devices, of which the first has chunks 1 to 8 and is absent when the next process starts.
WorldOptions FirstIsAway() {
  WorldOptions options = SmallWorld();
  options.arena_outlives = false;
  options.device_blocks = {512, 512};
  return options;
}

// Makes the first device leave, within the time. Returns false if it has not left by then.
bool Leaves(StoreTester& s, std::chrono::milliseconds within = std::chrono::milliseconds(300)) {
  bool left = false;
  REQUIRE(s.world.Leave(0, [&left](const absl::Status& status) { left = status.ok(); }));
  s.Pass(within);
  return left;
}

struct Away {
  explicit Away(const WorldOptions& options = FirstIsAway()) : s(options) {
    s.world.Kill();
    s.world.SetAttached(1, false);
    s.world.Start();
    s.Connect();
    for (uint64_t i = 1; i <= 8; ++i) REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.Settle();
    s.world.Kill();
    s.world.SetAttached(0, false);
    s.world.SetAttached(1, true);
    s.world.Start();
    s.Connect();
  }
  // Returns "joined", the status, or "waiting". The index may fail after this many records.
  std::string Join(std::optional<size_t> fails_after = std::nullopt) {
    std::string answer = "waiting";
    REQUIRE(s.world.Join(0, [&answer](const absl::Status& joined) {
      answer = joined.ok() ? "joined" : std::string(joined.message());
    }));
    if (fails_after.has_value()) s.world.index(0).FailNextScan(*fails_after);
    s.RunAll();
    s.store().CheckInvariants();
    return answer;
  }
  DeviceState State() { return s.store().snapshot().devices[0].state; }

  StoreTester s;
};

}  // namespace

TEST_CASE("what a device holds that is away is a miss, and a hit when it has joined") {
  Away away;
  StoreTester& s = away.s;
  CHECK(away.State() == DeviceState::kOffline);
  CHECK(s.Get(1) == "miss");
  REQUIRE(s.Put(9, 4096, {.durable = true}) == "stored");  // the other one takes it
  s.Settle();
  CHECK(s.Where(9) == "23");
  CHECK(away.Join() == "joined");
  CHECK(away.State() == DeviceState::kOk);
  for (uint64_t i = 1; i <= 4; ++i) CHECK(s.Get(i) == "hit");
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Get(9) == "hit");
}

TEST_CASE("until a device has joined its chunks are misses and nothing is written there") {
  Away away;
  StoreTester& s = away.s;
  s.world.HoldIndex(true);
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  s.RunAll();
  CHECK(away.State() == DeviceState::kJoining);
  CHECK(s.Get(1) == "miss");
  for (uint64_t i = 20; i < 24; ++i) REQUIRE(s.Put(i) == "stored");
  s.RunAll();
  CHECK(s.store().snapshot().devices[0].queued_writes == 0);
  CHECK_FALSE(s.world.Join(0, [](const absl::Status&) {}));
  s.world.HoldIndex(false);
  s.Settle();
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("who wants a chunk durable waits for a device that joins") {
  StoreTester s;
  s.world.Kill();
  s.world.SetAttached(0, false);
  s.world.Start();
  s.Connect();
  REQUIRE(s.Put(1) == "stored");
  CHECK(s.Durable(1) == "away");  // none is on its way
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  s.world.HoldIndex(true);
  std::string first, second;
  REQUIRE(s.Put(2) == "stored");
  s.WhenDurable(2, &first);
  s.WhenDurable(1, &second);
  s.Pass(std::chrono::seconds(2));
  CHECK(first == "waiting");
  s.world.HoldIndex(false);
  s.Pass(std::chrono::seconds(3));
  CHECK(first == "ok");
  CHECK(second == "ok");
}

TEST_CASE("who wants a chunk durable does not wait for ever for a device that joins") {
  StoreTester s;
  s.world.Kill();
  s.world.SetAttached(0, false);
  s.world.Start();
  s.Connect();
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  s.world.HoldIndex(true);
  std::string durable;
  REQUIRE(s.Put(1) == "stored");
  s.WhenDurable(1, &durable);
  s.Pass(std::chrono::seconds(29));
  CHECK(durable == "waiting");
  s.Pass(std::chrono::seconds(2));
  CHECK(durable == "away");
  s.world.HoldIndex(false);
  s.Pass(std::chrono::seconds(1));
}

TEST_CASE("what was deleted while a device was away stays deleted when it joins") {
  Away away;
  StoreTester& s = away.s;
  s.Delete({1, 2});
  REQUIRE(s.Put(2) == "stored");  // deleted, and put anew
  s.Settle();
  CHECK(away.Join() == "joined");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
  CHECK(s.Get(3) == "hit");
  s.Settle();
  CHECK_FALSE(s.world.index(0).Find(s.Id(1)).has_value());
  CHECK_FALSE(s.world.index(0).Find(s.Id(2)).has_value());
}

TEST_CASE("blocks of what was deleted meanwhile stay taken until the index has forgotten it") {
  Away away;
  StoreTester& s = away.s;
  s.Delete({1, 2});
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  s.world.index(0).SetFaults({.commit_refused = 1});
  s.RunAll();
  s.store().CheckInvariants();
  const auto used = [&s] { return s.store().snapshot().devices[0].used_bytes; };
  const uint64_t with_removed = used();
  REQUIRE(away.State() == DeviceState::kOk);
  REQUIRE(s.world.index(0).Find(s.Id(1)).has_value());
  s.world.index(0).SetFaults({});
  s.Settle();
  CHECK_FALSE(s.world.index(0).Find(s.Id(1)).has_value());
  CHECK(used() == with_removed - 2 * 2 * kBlockBytes);
}

TEST_CASE("what was cleared while a device was away stays cleared when it joins") {
  for (const bool all : {true, false}) {
    Away away;
    StoreTester& s = away.s;
    s.store().Clear(all ? std::nullopt : std::optional(s.ns));
    CHECK(away.Join() == "joined");
    CHECK(s.Get(3) == "miss");
    s.Settle();
    CHECK_FALSE(s.world.index(0).Find(s.Id(3)).has_value());
  }
}

TEST_CASE("a chunk put anew keeps the record of the device that joins until it is stable") {
  for (const bool cut : {true, false}) {
    Away away;
    StoreTester& s = away.s;
    REQUIRE(s.Put(1) == "stored");
    s.RunAll();  // written to the other device, and not synced
    REQUIRE(s.world.index(1).Find(s.Id(1)).has_value());
    CHECK(away.Join() == "joined");
    REQUIRE(s.world.index(0).Find(s.Id(1)).has_value());
    if (cut) {
      s.PowerCutAndStart();
      s.Settle();
      CHECK_FALSE(s.Get(1) == "miss");
    } else {
      s.Settle();  // synced: the older record is not needed
      CHECK_FALSE(s.world.index(0).Find(s.Id(1)).has_value());
      CHECK(s.Get(1) == "hit");
    }
  }
}

TEST_CASE("a record of what G2 alone holds is its copy in G3, and nothing is written") {
  WorldOptions options = FirstIsAway();
  Away away(options);
  StoreTester& s = away.s;
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  const uint64_t written = s.counters().write_backs;
  CHECK(away.Join() == "joined");
  CHECK(s.Where(1) == "23");
  s.Settle();
  CHECK(s.counters().write_backs == written);
  CHECK(s.Durable(1) == "ok");
}

TEST_CASE("a record of another shape stays beneath what G2 holds, and is the chunk after it") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(s.Put(1, 9000, {.no_g3 = true}) == "stored");
  CHECK(away.Join() == "joined");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Where(1) == "2");
  CHECK(s.world.index(0).Find(s.Id(1)).has_value());
  REQUIRE(s.Durable(1) == "ok");  // written: the earlier record goes
  s.Settle();
  CHECK(s.Where(1) == "23");
}

TEST_CASE("a device whose index cannot be read leaves nothing behind, and may join later") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(s.Put(4, 9000, {.no_g3 = true}) == "stored");  // its record would stay beneath it
  CHECK(away.Join(7) == "memory index: the scan failed, as the test asked");
  CHECK(away.State() == DeviceState::kOffline);
  CHECK(s.Get(1) == "miss");
  CHECK(s.store().snapshot().g3.chunks == 0);
  s.Delete({2});
  CHECK(away.Join() == "joined");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "miss");
}

TEST_CASE("what a device that did not join gave a copy of is written to another one") {
  WorldOptions options = FirstIsAway();
  options.hold_work = 5;  // adopts six records a batch
  Away away(options);
  StoreTester& s = away.s;
  for (uint64_t i = 1; i <= 8; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  s.world.index(0).FailNextScan(7);  // some are adopted by then
  s.RunAll();
  REQUIRE(away.State() == DeviceState::kOffline);
  s.Settle();
  uint64_t written = 0;
  for (uint64_t i = 1; i <= 8; ++i) written += s.Where(i) == "23";
  CHECK(written == 6);  // the others wait for nothing, as none was offered to G3
}

TEST_CASE("a record on a device that cannot be read ends no other one") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.Settle();
  REQUIRE(s.world.index(1).Find(s.Id(1)).has_value());
  s.FloodG2();
  s.world.SetGone(1, true);
  for (int i = 0; i < 4; ++i) s.Get(1);  // it is offline after some errors
  REQUIRE(s.store().snapshot().devices[1].state == DeviceState::kOffline);
  CHECK(away.Join() == "joined");
  s.Pass(std::chrono::seconds(3));
  CHECK(s.world.index(0).Find(s.Id(1)).has_value());
}

// A drive that lost its power alone brings back a record whose blocks are another chunk's by now.
TEST_CASE("of two records that are both sure the one whose image is whole is the chunk") {
  for (const size_t spoiled : {0, 1}) {
    for (const bool asked : {false, true}) {
      INFO("spoiled on device " << spoiled << (asked ? ", asked for" : ""));
      Away away;
      StoreTester& s = away.s;
      REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
      s.Settle();
      s.KillAndStart();
      const std::optional<IndexRecord> record = s.world.index(spoiled).Find(s.Id(1));
      REQUIRE(record.has_value());
      const Extent extent = record->extents[0];
      const std::span<std::byte> image =
          s.OnDisk(extent.first.value(), extent.count.value(), spoiled);
      std::fill(image.begin(), image.end(), std::byte{7});
      REQUIRE(away.Join() == "joined");
      CHECK(s.Durable(1) == "ok");
      if (asked) s.Get(1);  // the spoiled one is a miss, once
      for (int i = 0; i < 5; ++i) s.Pass(std::chrono::seconds(1));
      s.Settle();
      s.store().CheckInvariants();
      CHECK_FALSE(s.world.index(spoiled).Find(s.Id(1)).has_value());
      CHECK(s.Get(1) == (spoiled == 1 ? "old" : "hit"));  // that device has the put's bytes
    }
  }
}

TEST_CASE("a delete amid which a device joins covers its records") {
  Away away;
  StoreTester& s = away.s;
  s.world.Kill();
  bool joins = false;
  s.world.SetBetweenSlices([&] {
    if (std::exchange(joins, false)) s.RunAll();
  });
  s.world.Start();
  s.Connect();
  std::vector<uint64_t> names;
  for (uint64_t i = 20; i < 30; ++i) {
    REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
    names.push_back(i);
  }
  names.push_back(1);
  REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
  joins = true;
  s.Delete(names);
  REQUIRE_FALSE(joins);  // in the middle of the call
  s.RunAll();
  REQUIRE(away.State() == DeviceState::kOk);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("a device that leaves is away when nothing of it is under way, and may join again") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(away.Join() == "joined");
  std::string left = "waiting";
  REQUIRE(s.world.Leave(0, [&left](const absl::Status& status) {
    left = status.ok() ? "left" : std::string(status.message());
  }));
  CHECK(s.Get(1) == "miss");
  CHECK(left == "waiting");
  s.Delete({2});
  s.Pass(std::chrono::milliseconds(300));
  CHECK(left == "left");
  CHECK(away.State() == DeviceState::kOffline);
  CHECK(s.store().snapshot().devices[0].chunks == 0);
  s.Delete({3});
  REQUIRE(away.Join() == "joined");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "miss");
  CHECK(s.Get(3) == "miss");
  CHECK(s.Get(4) == "hit");
  CHECK(s.Durable(1) == "ok");
}

TEST_CASE("a removal that had not reached the index of a device that left is not forgotten") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(away.Join() == "joined");
  s.world.HoldIndex(true);
  s.Delete({1});  // its removal is on its way
  s.world.index(0).SetFaults({.commit_refused = 1});
  s.Delete({2});
  s.world.HoldIndex(false);
  s.Pass(std::chrono::milliseconds(300));
  REQUIRE(s.world.index(0).Find(s.Id(1)).has_value());
  REQUIRE(Leaves(s));
  REQUIRE(away.Join() == "joined");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "miss");
  CHECK(s.Get(3) == "hit");
}

TEST_CASE("a record that the index refused, and kept, brings no deleted chunk back") {
  WorldOptions options = FirstIsAway();
  options.device_blocks = {512};
  StoreTester s(options);
  for (uint64_t i = 1; i <= 16; ++i) {
    s.world.index(0).SetFaults({.commit_error = 1, .breaks = true});
    REQUIRE(s.Put(i) == "stored");
    s.Pass(std::chrono::milliseconds(100));
    s.Delete({i});
    REQUIRE(Leaves(s));
    REQUIRE(s.world.Join(0, [](const absl::Status&) {}));
    s.Pass(std::chrono::milliseconds(300));
    CHECK(s.Get(i) == "miss");
  }
  CHECK(s.world.index(0).counted().phantoms > 3);  // half of them were there, and removed
  CHECK(s.world.index(0).All().empty());
}

TEST_CASE("what was to be written to a device that leaves goes to another one") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(away.Join() == "joined");
  s.world.HoldIndex(true);
  std::vector<std::string> durable(4, "waiting");
  for (uint64_t i = 20; i < 24; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.WhenDurable(i, &durable[i - 20]);
  }
  s.RunAll();
  bool left = false;
  REQUIRE(s.world.Leave(0, [&left](const absl::Status& status) { left = status.ok(); }));
  s.world.HoldIndex(false);
  s.Pass(std::chrono::seconds(5));
  REQUIRE(left);
  for (uint64_t i = 20; i < 24; ++i) CHECK(s.Where(i) == "23");
}

TEST_CASE("a store that drains takes no device any more") {
  Away away;
  StoreTester& s = away.s;
  s.store().BeginDrain();
  CHECK(away.Join() == "the store drains");
  CHECK(away.State() == DeviceState::kOffline);
}

TEST_CASE("a place that is taken takes no other device") {
  Away away;
  StoreTester& s = away.s;
  REQUIRE(away.Join() == "joined");
  absl::Status answer;
  s.store().Attach(0, {.device = &s.world.nvme(0), .index_executor = &s.world.index_executor(),
                       .sync_executor = &s.world.executor()},
                   [&answer](absl::Status joined) { answer = std::move(joined); });
  CHECK(absl::IsFailedPrecondition(answer));
}

TEST_CASE("the tick after a join takes what is above a tenant's quota") {
  WorldOptions options = FirstIsAway();
  options.store.tenants = {{.name = "", .g2_segments = 1}};
  Away away(options);
  StoreTester& s = away.s;
  StoreOptions limits = s.store().options();
  limits.tenants[0].g3_quota_bytes = 4 * kBlockBytes;
  REQUIRE(s.store().SetLimits(limits).ok());
  CHECK(away.Join() == "joined");
  s.Settle();
  CHECK(s.store().snapshot().tenants[0].g3_used_bytes <= 4 * kBlockBytes);
  CHECK(s.store().snapshot().devices[0].chunks > 0);
}

}  // namespace kvkeep
