// Which device a chunk is written to.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Returns which of the two devices has the chunk, or 2 if none has it.
size_t DeviceOf(StoreTester& s, uint64_t name) {
  size_t found = 2;
  for (size_t d = 0; d < 2; ++d) {
    const auto scanned = s.world.index(d).Scan([&](const IndexRecord& record) {
      if (record.id == s.Id(name)) found = d;
      return true;
    });
    KVKEEP_CHECK(scanned.ok());
  }
  return found;
}

}  // namespace

TEST_CASE("children lie next to their parents, on the same device") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {300, 400};
  StoreTester s(options);
  for (const uint64_t head : {0, 100, 200, 300}) {
    for (uint64_t i = head; i < head + 5; ++i) {
      PutHow how;
      if (i > head) how.parent = i - 1;
      REQUIRE(s.Put(i, 4096, how) == "stored");
      s.RunAll();
    }
  }
  s.Settle();
  std::set<size_t> devices;
  for (const uint64_t head : {0, 100, 200, 300}) {
    const size_t device = DeviceOf(s, head);
    devices.insert(device);
    for (uint64_t i = head + 1; i < head + 5; ++i) {
      CHECK(DeviceOf(s, i) == device);
      CHECK(s.DeviceBlock(i, device) == s.DeviceBlock(i - 1, device) + 2);
    }
  }
  CHECK_FALSE(devices.empty());
}

TEST_CASE("with two devices both are used") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {300, 300};
  StoreTester s(options);
  for (uint64_t i = 0; i < 40; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
  const StoreSnapshot snapshot = s.store().snapshot();
  CHECK(snapshot.devices[0].chunks >= 10);
  CHECK(snapshot.devices[1].chunks >= 10);
  CHECK(snapshot.g3.chunks == 40);
}

TEST_CASE("drives of unequal size are filled and then turned over alike") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {600, 200};
  StoreTester s(options);
  const auto chunks = [&](size_t device) { return s.store().snapshot().devices[device].chunks; };
  uint64_t next = 0;
  const auto put = [&](int count) {
    for (int i = 0; i < count; ++i, ++next) {
      REQUIRE(s.Put(next) == "stored");
      s.RunAll();
    }
    s.Settle();
  };
  put(200);
  CHECK(chunks(0) >= 2 * chunks(1));
  CHECK(chunks(1) >= 40);
  put(2'000);  // full for long
  const uint64_t oldest_kept = next - chunks(0) - chunks(1);
  for (size_t device = 0; device < 2; ++device) {
    uint64_t oldest = next;
    for (uint64_t name = 0; name < next; ++name) {
      if (s.Where(name).empty()) continue;
      if (DeviceOf(s, name) == device) oldest = std::min(oldest, name);
    }
    INFO("device " << device << ": oldest " << oldest << ", of " << oldest_kept);
    CHECK(oldest + 20 >= oldest_kept);
  }
}

TEST_CASE("what all chunks descend from does not draw them all to one drive") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {400, 400};
  StoreTester s(options);
  REQUIRE(s.Put(0) == "stored");
  s.RunAll();
  uint64_t moves = 0;
  for (uint64_t chain = 1; chain <= 100; ++chain) {
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t parent = i == 0 ? 0 : 100 * chain + i - 1;
      REQUIRE(s.Put(100 * chain + i, 4096, {.parent = parent}) == "stored");
      s.RunAll();
      moves +=
          i > 0 && DeviceOf(s, parent) < 2 && DeviceOf(s, 100 * chain + i) != DeviceOf(s, parent);
    }
  }
  const StoreSnapshot snapshot = s.store().snapshot();
  for (const auto& device : snapshot.devices) CHECK(device.used_bytes >= 280 * kBlockBytes);
  // Most of the 700 chunks with a parent in their chain are adjacent to it.
  CHECK(moves <= 150);
}

TEST_CASE("of two drives the one that does not keep up gets what it can take") {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 1024;
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 1024 * kBlockBytes;
  options.store.max_device_writes_in_flight_bytes = 2 * kBlockBytes;
  options.device_blocks = {2000, 2000};
  StoreTester s(options);
  s.world.device(0).set_options({.stuck = 1});
  for (uint64_t i = 0; i < 400; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  const StoreSnapshot snapshot = s.store().snapshot();
  CHECK(snapshot.devices[0].queued_writes <= 70);
  CHECK(snapshot.devices[1].chunks >= 300);
  s.world.device(0).set_options({});
}

TEST_CASE("what waits for a drive that hangs is written to another one, and durable there") {
  WorldOptions options = SmallWorld();
  options.store.max_device_writes_in_flight_bytes = 1;  // one at a time
  options.device_blocks = {512, 512};
  StoreTester s(options);
  s.world.device(0).set_options({.stuck = 1});
  std::vector<std::string> durable(8);
  for (uint64_t i = 0; i < durable.size(); ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.WhenDurable(i, &durable[i]);
  }
  CHECK(s.store().snapshot().devices[0].queued_writes >= 2);
  s.Pass(std::chrono::seconds(7));
  // One write is on its way to the drive, so its chunk waits for the drive.
  CHECK(std::count(durable.begin(), durable.end(), "ok") == 7);
  CHECK(std::count(durable.begin(), durable.end(), "waiting") == 1);
  CHECK(s.counters().write_backs_moved >= 2);
  s.world.device(0).set_options({});
  s.Settle();
  CHECK(std::count(durable.begin(), durable.end(), "ok") == 8);
}

TEST_CASE("a device whose index is full is passed over while another one takes writes") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {300, 400};
  StoreTester s(options);
  REQUIRE(s.Put(0) == "stored");
  s.Settle();
  const size_t full = DeviceOf(s, 0);
  s.world.nvme(full).set_index_over_budget(true);
  // Without the full index, all of these chunks would go to their parent's device.
  std::vector<std::string> durable(9);
  for (uint64_t i = 1; i < durable.size(); ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true, .parent = 0}) == "stored");
    s.WhenDurable(i, &durable[i]);
    s.Settle();
  }
  CHECK(std::count(durable.begin(), durable.end(), "ok") == 8);
  CHECK(s.store().snapshot().devices[full].chunks == 1);
  CHECK(s.counters().write_backs_moved == 0);
  // The device takes writes again once a sync has found room.
  s.world.nvme(full).set_index_over_budget(false);
  for (uint64_t i = 100; i < 104; ++i) {
    s.Put(i, 4096, {.parent = 0});
    s.Settle();
  }
  CHECK(s.store().snapshot().devices[full].chunks > 1);
}

}  // namespace kvkeep
