// A chunk put anew while its record is in doubt or its device silent: until the new one is stable
// the old one survives everything.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Durable, and after a power cut: whether all its bytes are there is unknown before it is read.
void PutDurableAndCut(StoreTester& s, uint64_t name, size_t bytes = 4096) {
  REQUIRE(s.Put(name, bytes, {.durable = true}) == "stored");
  s.Settle();
  REQUIRE(s.Durable(name) == "ok");
  s.PowerCutAndStart();
  s.RunAll();
  REQUIRE(s.Where(name) == "3");
}

bool IsThere(StoreTester& s, uint64_t name) {
  s.RunAll();
  const std::string got = s.Get(name);
  UNSCOPED_INFO("get of " << name << ": " << got);
  return got == "hit" || got == "old";
}

bool IsOn(StoreTester& s, size_t device, uint64_t name) {
  return s.world.index(device).Find(s.Id(name)).has_value();
}

WorldOptions TwoDevices(uint64_t seed) {
  WorldOptions options = SmallWorld();
  options.seed = seed;
  options.device_blocks = {512, 512};
  return options;
}

// Durable on the device whose index is read last, then put anew on the other one while that is
// silent; the power is cut before the new one is stable. The next process is not started yet.
uint64_t PutOnBothAndCut(StoreTester& s) {
  for (uint64_t i = 1; i <= 6; ++i) REQUIRE(s.Put(i, 20'000, {.durable = true}) == "stored");
  s.Settle();
  uint64_t name = 1, other = 6;
  while (!IsOn(s, 1, name)) REQUIRE(++name <= 6);
  while (!IsOn(s, 1, other) || other == name) REQUIRE(--other > 0);
  REQUIRE(s.Durable(name) == "ok");
  s.KillAndStart();
  s.world.device(1).set_options({.stuck = 1});
  {
    const ChunkReader reader = s.Pin(other);
    REQUIRE(reader);
    s.Pass(std::chrono::seconds(7));
    REQUIRE(s.Where(name).empty());
    REQUIRE(s.Put(name, 20'000) == "stored");
    while (!IsOn(s, 0, name)) REQUIRE(s.world.RunOneAtRandom());
  }
  s.world.PowerCut();
  return name;
}

uint64_t UsedBlocks(StoreTester& s) { return s.store().snapshot().g3.used_bytes / kBlockBytes; }

// In G3 only, and its device answers nothing.
void PutAndSilence(StoreTester& s) {
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  REQUIRE(s.Durable(1) == "ok");
  s.KillAndStart();
  s.world.device().set_options({.stuck = 1});
  const ChunkReader reader = s.Pin(2);
  REQUIRE(reader);
  s.Pass(std::chrono::seconds(7));
  REQUIRE(s.Where(1).empty());
}

}  // namespace

TEST_CASE("what is put durable twice is there when the second put was cut short") {
  for (const bool power : {false, true}) {
    INFO((power ? "power cut" : "kill"));
    StoreTester s;
    PutDurableAndCut(s, 1);
    s.world.device().set_options({.stuck = 1});  // the second one's bytes do not get there
    REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
    s.Pass(std::chrono::seconds(3));
    power ? s.PowerCutAndStart() : s.KillAndStart();
    CHECK(IsThere(s, 1));
    s.store().CheckInvariants();
  }
}

TEST_CASE("what is put durable twice is there at whatever moment the power fails",
          "[figures]") {
  uint64_t before = 0, after = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    WorldOptions options = SmallWorld();
    options.seed = seed;
    options.device_blocks = {96};  // nothing is evicted, and freed blocks are soon used again
    StoreTester s(options);
    PutDurableAndCut(s, 1, 20'000);
    uint64_t next = 10;
    while (next < 13) REQUIRE(s.Put(next++, 20'000) == "stored");
    s.Settle();
    const std::string again = s.Put(1, 20'000, {.durable = true});
    if (again == "present") continue;  // read meanwhile
    REQUIRE(again == "stored");
    std::string durable;
    s.WhenDurable(1, &durable);
    for (uint64_t i = 0; i < seed % 80; ++i) {
      if (i % 10 == 9 && next < 17) s.Put(next++, 20'000);
      s.world.RunOneAtRandom();
    }
    s.store().CheckInvariants();
    ++(durable == "waiting" ? before : after);
    s.PowerCutAndStart();
    CHECK(IsThere(s, 1));
    s.store().CheckInvariants();
  }
  CHECK(before > 10);
  CHECK(after > 10);
}

TEST_CASE("what was replaced keeps its place until the new record is stable") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = SmallWorld();
    options.seed = seed;
    StoreTester s(options);
    PutDurableAndCut(s, 1, 20'000);
    const uint64_t used = UsedBlocks(s);
    REQUIRE(s.Put(1, 20'000, {.durable = true}) == "stored");
    std::string durable;
    s.WhenDurable(1, &durable);
    while (s.Where(1) != "23") REQUIRE(s.world.RunOneAtRandom());
    REQUIRE(durable == "waiting");
    CHECK(UsedBlocks(s) == used + 6);
    s.Settle();
    CHECK(durable == "ok");
    CHECK(UsedBlocks(s) == used);
  }
}

TEST_CASE("a put while its device is silent takes nothing from what the device holds") {
  for (const bool power : {false, true}) {
    INFO((power ? "power cut" : "kill"));
    StoreTester s;
    PutAndSilence(s);
    REQUIRE(s.Put(1) == "stored");  // unbacked: no device takes it
    REQUIRE(s.Put(3) == "stored");
    s.Pass(std::chrono::seconds(2));
    s.world.device().set_options({});
    s.Pass(std::chrono::seconds(2));
    s.store().CheckInvariants();
    power ? s.PowerCutAndStart() : s.KillAndStart();
    CHECK(IsThere(s, 1));
  }
}

TEST_CASE("what was replaced goes when the new one is stable or is deleted") {
  StoreTester s;
  PutAndSilence(s);
  REQUIRE(s.Put(1) == "stored");
  s.world.device().set_options({});
  s.Settle();
  const uint64_t used = UsedBlocks(s);
  SECTION("stable") {
    REQUIRE(s.Durable(1) == "ok");
    s.Settle();
    CHECK(s.Where(1) == "23");
    CHECK(UsedBlocks(s) == used);
    s.KillAndStart();
    s.RunAll();
    CHECK(s.Get(1) == "hit");
  }
  SECTION("deleted") {
    CHECK(s.Delete({1}) == 1);
    s.Settle();
    CHECK(UsedBlocks(s) == used - 2);
    s.KillAndStart();
    s.RunAll();
    CHECK(s.Get(1) == "miss");
  }
  s.store().CheckInvariants();
}

TEST_CASE("what was replaced is of G3 again when the new one is evicted and nowhere else") {
  StoreTester s;
  PutAndSilence(s);
  const uint64_t used = UsedBlocks(s);
  const bool same_shape = GENERATE(true, false);
  REQUIRE(s.Put(1, same_shape ? 4096 : 20'000) == "stored");
  SECTION("its device is still silent") {
    s.FloodG2();
    REQUIRE(s.Where(1).empty());
    s.store().CheckInvariants();
    s.world.device().set_options({});
  }
  SECTION("its device answers again") {
    s.world.device().set_options({});
    s.RunAll();
    s.FloodG2();
  }
  s.Settle();
  s.store().CheckInvariants();
  CHECK(s.Where(1) == (same_shape ? "3" : ""));
  CHECK(UsedBlocks(s) == used - (same_shape ? 0 : 2));
  const bool power = GENERATE(true, false);
  power ? s.PowerCutAndStart() : s.KillAndStart();
  s.RunAll();
  CHECK(s.Get(1) == (same_shape ? "old" : "miss"));
  s.store().CheckInvariants();
}

TEST_CASE("what was replaced before its header was read is promised again once that was") {
  constexpr uint64_t kChunks = 40;  // more than have their headers read at a time
  StoreTester s;
  for (uint64_t i = 0; i < kChunks; ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  s.world.PowerCut();
  s.world.SetDeviceFaults({.stuck = 1});
  s.world.Start();
  s.Connect();
  s.Pass(std::chrono::seconds(7));
  for (uint64_t i = 0; i < kChunks; ++i) {
    REQUIRE(s.Where(i).empty());
    REQUIRE(s.Put(i) == "stored");
  }
  s.FloodG2();
  s.store().CheckInvariants();
  for (uint64_t i = 0; i < kChunks; ++i) REQUIRE(s.Where(i).empty());
  s.world.device().set_options({});
  s.Settle();
  s.store().CheckInvariants();
  uint64_t back = 0;  // the others went with their replacements, as their headers were being read
  for (uint64_t i = 0; i < kChunks; ++i) {
    if (s.Where(i).empty()) continue;
    CHECK(s.Get(i) == "old");
    ++back;
  }
  CHECK(back == kChunks - 32);
}

TEST_CASE("what was replaced outlives an index that refuses the new record") {
  StoreTester s;
  PutDurableAndCut(s, 1);
  s.world.index().SetFaults({.commit_refused = 1});
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.Pass(std::chrono::seconds(3));
  s.world.index().SetFaults({});
  s.Settle();
  s.store().CheckInvariants();
  s.PowerCutAndStart();
  CHECK(IsThere(s, 1));
}

TEST_CASE("what was replaced outlives a sync that fails once and drops the new bytes") {
  StoreTester s;
  PutDurableAndCut(s, 1);
  s.world.device().set_options({.sync_error = 1, .sync_drops = 1});
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.RunAll();
  CHECK(s.counters().sync_failures > 0);
  s.world.device().set_options({});
  CHECK(s.Durable(1) == "away");
  s.Pass(std::chrono::seconds(3));
  s.store().CheckInvariants();
  s.PowerCutAndStart();
  CHECK(IsThere(s, 1));
}

TEST_CASE("what was replaced on one device stays until the new one is stable on another",
          "[figures]") {
  uint64_t before = 0, after = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    WorldOptions options = SmallWorld();
    options.seed = seed;
    options.device_blocks = {512, 512};
    StoreTester s(options);
    for (uint64_t i = 1; i <= 6; ++i) REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.Settle();
    REQUIRE(s.Durable(1) == "ok");
    const auto is_on = [&](size_t d, uint64_t i) {
      return s.world.index(d).Find(s.Id(i)).has_value();
    };
    const size_t device = is_on(0, 1) ? 0 : 1;
    uint64_t other = 2;
    while (!is_on(device, other)) REQUIRE(++other <= 6);
    s.KillAndStart();
    s.world.device(device).set_options({.stuck = 1});
    {
      const ChunkReader reader = s.Pin(other);
      REQUIRE(reader);
      s.Pass(std::chrono::seconds(7));
      REQUIRE(s.Where(1).empty());
      REQUIRE(s.Put(1) == "stored");
      for (uint64_t i = 0; i < seed % 40; ++i) s.world.RunOneAtRandom();
      if (seed % 4 == 0) s.Pass(std::chrono::milliseconds(300 * (seed % 7)));
      s.store().CheckInvariants();
      ++(is_on(device, 1) ? before : after);
    }
    s.PowerCutAndStart();
    CHECK(IsThere(s, 1));
    s.store().CheckInvariants();
  }
  CHECK(before > 10);
  CHECK(after > 3);
}

TEST_CASE("of two records in doubt the one whose image is whole is the chunk",
          "[figures]") {
  uint64_t both = 0, stale = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    StoreTester s(TwoDevices(seed));
    const uint64_t name = PutOnBothAndCut(s);
    both += IsOn(s, 0, name) && IsOn(s, 1, name);
    s.world.Start();
    s.Connect();
    s.store().CheckInvariants();
    if (seed % 2 == 0) {
      const bool at_once = IsThere(s, name);  // otherwise the next reader has the other one
      CHECK((at_once || IsThere(s, name)));
    } else {
      for (int i = 0; i < 5; ++i) s.Pass(std::chrono::seconds(1));  // nothing asks for it
    }
    s.Settle();
    s.store().CheckInvariants();
    stale += s.counters().stale_records + s.counters().scrub_damaged_chunks;
    CHECK(IsOn(s, 0, name) != IsOn(s, 1, name));
    CHECK(IsThere(s, name));
    s.PowerCutAndStart();
    CHECK(IsThere(s, name));
  }
  CHECK(both > 30);
  CHECK(stale > 3);
}

TEST_CASE("of two records in doubt one goes also when the chunk was put anew and evicted since") {
  uint64_t both = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    StoreTester s(TwoDevices(seed));
    const uint64_t name = PutOnBothAndCut(s);
    if (!IsOn(s, 0, name) || !IsOn(s, 1, name)) continue;
    s.world.Start();
    s.Connect();
    s.RunAll();
    // Counts as stored in G2 only: it does not survive its eviction.
    const std::string again = s.Put(name, 20'000, {.durable = true, .no_g3 = true});
    if (again != "stored" || !IsOn(s, 0, name) || !IsOn(s, 1, name)) continue;
    ++both;
    s.Pass(std::chrono::seconds(1));
    s.FloodG2();
    s.store().CheckInvariants();
    REQUIRE(s.Where(name) == "3");
    for (int i = 0; i < 5; ++i) s.Pass(std::chrono::seconds(1));  // nothing asks for it
    s.Settle();
    s.store().CheckInvariants();
    CHECK(IsOn(s, 0, name) != IsOn(s, 1, name));
    CHECK(IsThere(s, name));
  }
  CHECK(both > 3);
}

TEST_CASE("what was replaced gives way where there is no room for both") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {40};
  StoreTester s(options);
  PutDurableAndCut(s, 1, 80'000);  // 21 blocks: a second one does not fit beside it
  REQUIRE(s.Put(1, 80'000, {.durable = true}) == "stored");
  s.Settle();
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Where(1) == "23");
  s.store().CheckInvariants();
}

TEST_CASE("what is read while it is put anew keeps its bytes until both have ended") {
  StoreTester s;
  PutDurableAndCut(s, 1, 20'000);
  s.world.device().set_options({.stuck = 1});
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  REQUIRE(s.Put(1, 20'000, {.durable = true}) == "stored");
  s.Pass(std::chrono::seconds(1));
  s.store().CheckInvariants();
  s.world.device().set_options({});
  s.Settle();
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  CHECK(s.Bytes(1, reader) == "old");
  reader = {};
  s.Settle();
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Where(1) == "23");
  s.store().CheckInvariants();
  s.PowerCutAndStart();
  CHECK(IsThere(s, 1));
}

TEST_CASE("what was read while it was put anew keeps its blocks until the new record is stable",
          "[figures]") {
  uint64_t back = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    WorldOptions options = SmallWorld();
    options.seed = seed;
    options.device_blocks = {96};  // freed blocks are soon used again
    StoreTester s(options);
    PutDurableAndCut(s, 1, 20'000);
    s.world.device().set_options({.stuck = 1});
    ChunkReader reader = s.Pin(1);
    REQUIRE(reader);
    for (int i = 0; i < 20; ++i) s.world.RunOneAtRandom();
    s.world.device().set_options({.stuck = 1e-12});  // that read alone
    REQUIRE(s.Put(1, 20'000, {.durable = true}) == "stored");
    const auto old = s.world.index(0).Find(s.Id(1));
    REQUIRE(old.has_value());
    const auto replaced = [&] {
      const auto now = s.world.index(0).Find(s.Id(1));
      return now.has_value() && now->sequence != old->sequence;
    };
    while (!replaced()) REQUIRE(s.world.RunOneAtRandom());
    s.world.device().Unstick();
    reader = {};
    uint64_t next = 10;
    for (uint64_t i = 0; i < 20 + seed % 60; ++i) {
      if (i % 5 == 4 && next < 17) s.Put(next++, 20'000);
      s.world.RunOneAtRandom();
    }
    REQUIRE(s.store().snapshot().counters.g3_evictions == 0);
    s.store().CheckInvariants();
    s.PowerCutAndStart();
    back += replaced() ? 0 : 1;
    CHECK(IsThere(s, 1));
    s.store().CheckInvariants();
  }
  CHECK(back > 3);
}

}  // namespace kvkeep
