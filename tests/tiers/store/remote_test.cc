// A third tier beyond the node, without extents, records or space of its own.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

WorldOptions WithRemote() {
  WorldOptions options = SmallWorld();
  options.remote = true;
  return options;
}

struct Remote {
  explicit Remote(const WorldOptions& options = WithRemote()) : s(options) {}

  // Returns how many came, "waiting", or the status' message.
  std::string Recall(const std::vector<uint64_t>& names) {
    std::string answer = "waiting";
    Begin(names, &answer);
    s.RunAll();
    s.store().CheckInvariants();
    return answer;
  }
  void Begin(const std::vector<uint64_t>& names, std::string* answer) {
    std::vector<ChunkKey> keys;
    for (const uint64_t name : names) keys.push_back(MakeKey(name));
    const PartId part(0);
    s.store().Recall(s.session, {s.ns, keys, std::span(&part, 1)},
                     [answer](const absl::StatusOr<uint64_t>& came) {
                       *answer = came.ok() ? std::to_string(*came)
                                           : std::string(came.status().message());
                     });
  }
  // Runs until it has space in an empty G2: the images are found, and none is read.
  void BeginReading(const std::vector<uint64_t>& names, std::string* answer) {
    Begin(names, answer);
    while (s.store().snapshot().g2.used_bytes == 0) REQUIRE(s.world.RunOneAtRandom());
  }
  RemoteCounters counters() { return *s.store().snapshot().remote; }
  void LoseNode() { s.LoseNode(); }

  StoreTester s;
};

}  // namespace

TEST_CASE("what was put is beyond the node soon, and comes back to a node that has lost it") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  CHECK(s.Put(2, 3 * kBlockBytes, {.tail_bytes = 100}) == "stored");
  CHECK(s.Put(3, 4096, {.no_g3 = true}) == "stored");
  s.Settle();
  CHECK(s.world.bucket().size() == 2);
  CHECK(remote.counters().written_chunks == 2);
  remote.LoseNode();
  CHECK(s.Get(1) == "miss");
  CHECK(remote.Recall({1, 2, 3}) == "2");
  CHECK(s.Where(1) == "2");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "hit");
  CHECK(s.Get(3) == "miss");
  CHECK(remote.Recall({1, 2}) == "0");  // they are here
  CHECK(remote.counters().searched_chunks == 3);
}

TEST_CASE("what was recalled is written to G3 once it is used again, or is to be durable") {
  Remote remote;
  StoreTester& s = remote.s;
  remote.LoseNode();
  CHECK(s.Put(1, 4096) == "stored");  // while there is no device
  s.Settle();
  REQUIRE(s.world.bucket().size() == 1);
  s.world.Kill();
  s.world.LoseArena();
  s.world.SetAttached(0, true);
  s.world.Start();
  s.Connect();
  CHECK(remote.Recall({1}) == "1");
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(remote.counters().recalled_unwritten == 1);
  SECTION("used") {
    s.Lookup({1});
    s.Settle();
  }
  SECTION("durable") { CHECK(s.Durable(1) == "ok"); }
  CHECK(s.Where(1) == "23");
  CHECK(s.counters().write_backs == 1);
}

TEST_CASE("who reads a chunk that is being recalled waits for its pieces") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  s.Settle();
  remote.LoseNode();
  std::string answer = "waiting";
  remote.BeginReading({1}, &answer);
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  CHECK(s.Where(1).empty());  // no lookup promises it
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  CHECK(s.Bytes(1, reader) == "hit");
  CHECK(answer == "1");
  // The read was a hit of G4; the next one is of G2. Neither is a promotion.
  CHECK(s.Get(1) == "hit");
  CHECK(remote.counters().read_hits == 1);
  CHECK(remote.counters().served_bytes == 4096);
  CHECK(s.counters().read_g2_hits == 1);
  CHECK(s.counters().read_g3_hits + s.counters().promotions + s.counters().promoted_bytes == 0);
}

TEST_CASE("what is gone, wrong or cut off beyond the node is a miss, and its space is free") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  s.Settle();
  remote.LoseNode();
  std::string failure, kept = "kept";
  SECTION("gone between search and read") {
    std::string answer = "waiting";
    remote.BeginReading({1}, &answer);
    s.world.bucket().clear();
    s.RunAll();
    CHECK(answer == "0");
    kept = "gone";
  }
  SECTION("bits flipped") {
    s.world.remote().set_faults({.corrupt_read = 1});
    CHECK(remote.Recall({1}) == "0");
    CHECK(remote.counters().bad_images == 1);
    kept = "removed";
  }
  SECTION("half of it published") {
    auto half = *s.world.bucket().begin()->second;
    half.resize(kBlockBytes);
    s.world.bucket().begin()->second = std::make_shared<const std::vector<std::byte>>(half);
    CHECK(remote.Recall({1}) == "0");
    kept = "removed";
  }
  SECTION("in plain, with all checksums right") {
    auto image = *s.world.bucket().begin()->second;
    const HeaderPage page(image.data(), kHeaderBytes);
    const std::vector<std::byte> payload = MakePayload(1, 1, 4096);
    ImageHeader header = DecodeHeader(page, s.world.remote().mac_key()).value();
    header.encryption.reset();
    header.identity.tail_checksum = Xxh3({});
    header.identity.piece_checksums = {Xxh3(payload)};
    EncodeHeader(header, s.world.remote().mac_key(), page);
    std::copy(payload.begin(), payload.end(), image.begin() + kHeaderBytes);
    s.world.bucket().begin()->second = std::make_shared<const std::vector<std::byte>>(image);
    CHECK(remote.Recall({1}) == "0");
    CHECK(remote.counters().bad_images == 1);
    kept = "removed";
  }
  SECTION("the source does not answer") {
    s.world.remote().set_faults({.read_error = 1});
    CHECK(remote.Recall({1}) == "0");
    CHECK(remote.counters().bad_images == 0);
  }
  SECTION("another image than was found") {
    const auto found = s.world.bucket().begin()->second;
    CHECK(s.Put(1, 9000) == "stored");
    s.Settle();
    const auto now = std::exchange(s.world.bucket().begin()->second, found);
    remote.LoseNode();
    std::string answer = "waiting";
    remote.BeginReading({1}, &answer);
    s.world.bucket().begin()->second = now;
    s.RunAll();
    CHECK(answer == "0");
    CHECK(remote.counters().bad_images == 0);
  }
  CHECK(s.Get(1) == "miss");
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  CHECK(remote.counters().failed_recalls == 1);
  s.world.remote().set_faults({});
  s.Settle();
  CHECK(s.world.bucket().size() == (kept == "kept" ? 1 : 0));  // bad images hinder no other
  CHECK(remote.Recall({1}) == (kept == "kept" ? "1" : "0"));
}

TEST_CASE("a chunk that was deleted does not come back from beyond the node") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  SECTION("nor before it is removed there") {
    s.Settle();
    s.world.remote().set_faults({.remove_error = 1});
    CHECK(s.Delete({1}) == 1);
    CHECK(remote.Recall({1}) == "0");
    CHECK(s.world.bucket().size() == 1);
    s.world.remote().set_faults({});
  }
  SECTION("nor where the place is full: a removal makes room") {
    s.Settle();
    s.world.remote().full = true;
    CHECK(s.Delete({1}) == 1);
    s.Settle();
    CHECK(s.world.bucket().empty());
    s.world.remote().full = false;
  }
  SECTION("nor by a search that found it before") {
    s.Settle();
    remote.LoseNode();
    std::string answer = "waiting";
    remote.Begin({1}, &answer);
    s.Delete({1});
    s.RunAll();
    CHECK(answer == "0");
  }
  SECTION("nor as it was on its way there") {
    while (s.world.bucket().empty()) REQUIRE(s.world.RunOneAtRandom());
    CHECK(s.Delete({1}) == 1);
  }
  s.Settle();
  CHECK(s.world.bucket().empty());
  CHECK(remote.Recall({1}) == "0");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Put(1, 4096) == "stored");  // anew
  s.Settle();
  CHECK(s.world.bucket().size() == 1);
  remote.LoseNode();
  CHECK(remote.Recall({1}) == "1");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("what was deleted and not removed beyond the node is removed by the next process") {
  Remote remote;
  StoreTester& s = remote.s;
  std::vector<uint64_t> names;
  for (uint64_t name = 1; name <= 20; ++name) {
    names.push_back(name);
    REQUIRE(s.Put(name, 4096) == "stored");
    s.Settle();
  }
  REQUIRE(s.world.bucket().size() == 20);
  s.world.remote().set_faults({.remove_error = 1});
  CHECK(s.Delete(names) == 20);
  std::string told = "waiting";
  s.store().WhenDeleted(false, [&](const absl::Status& status) {
    told = status.ok() ? "ok" : std::string(status.message());
  });
  while (told == "waiting") REQUIRE(s.world.RunOneAtRandom());
  CHECK(told == "ok");
  REQUIRE(s.world.bucket().size() == 20);
  remote.LoseNode();
  std::string answer = "waiting";
  remote.Begin(names, &answer);  // before anything is removed
  s.RunAll();
  CHECK(answer == "0");
  CHECK(remote.Recall(names) == "0");
  s.Settle();
  CHECK(s.world.bucket().empty());
  CHECK(s.store().snapshot().remote_removals_left == 0);
  CHECK(s.world.removal_log().Left().empty());
}

TEST_CASE("a delete whose names cannot be noted says so, and the next one notes them") {
  Remote remote;
  StoreTester& s = remote.s;
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  s.world.remote().set_faults({.remove_error = 1});
  s.world.removal_log().fails = true;
  const auto when_deleted = [&] {
    std::string told = "waiting";
    s.store().WhenDeleted(false, [&](const absl::Status& status) {
      told = status.ok() ? "ok" : std::string(status.message());
    });
    s.RunAll();
    return told;
  };
  CHECK(s.Delete({1}) == 1);
  CHECK(when_deleted() == "the disk is full");
  CHECK(remote.counters().failed_removal_notes >= 1);
  s.world.removal_log().fails = false;
  CHECK(s.Delete({1}) == 0);
  CHECK(when_deleted() == "ok");
  CHECK(s.world.removal_log().Left().size() == 1);
}

TEST_CASE("a delete of more than may wait is refused as a whole, and another tenant's is not") {
  Remote remote;
  StoreTester& s = remote.s;
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  s.world.remote().set_faults({.away = 1});
  const PartId part(0);
  uint64_t next = 1'000'000;
  absl::Status status;
  size_t taken = 0;
  for (; status.ok(); taken += 512) {
    std::vector<ChunkKey> keys;
    for (size_t i = 0; i < 512; ++i) keys.push_back(MakeKey(next++));
    status = s.store().Delete(s.session, {s.ns, keys, std::span(&part, 1)}).status();
    REQUIRE(taken < 100'000);
  }
  CHECK(absl::IsResourceExhausted(status));
  CHECK(remote.counters().refused_deletes == 1);
  CHECK(s.store().snapshot().remote_removals_left == taken - 512);
}

TEST_CASE("chunks that this node never had are removed beyond it as fast as it may ask") {
  Remote remote;
  StoreTester& s = remote.s;
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  remote.LoseNode();
  s.world.remote().asks = false;
  CHECK(s.Delete({1}) == 0);
  s.Settle();
  CHECK(s.world.bucket().size() == 1);
  CHECK(remote.Recall({1}) != "1");
  s.world.remote().asks = true;
  s.Settle();
  CHECK(s.world.bucket().empty());
}

TEST_CASE("recalls fill a part of G2 at most, and evict for it as puts do") {
  Remote remote;
  StoreTester& s = remote.s;
  std::vector<uint64_t> names;
  for (uint64_t i = 1; i <= 30; ++i) {
    CHECK(s.Put(i, 4096) == "stored");
    names.push_back(i);
    s.Settle();
  }
  remote.LoseNode();
  s.FloodG2();
  std::string answer = "waiting";
  remote.Begin(names, &answer);
  s.RunAll();
  // A quarter of 64 blocks, two blocks each: the first ones, as a prompt's head is worth the most.
  CHECK(answer == "8");
  CHECK(remote.counters().no_space == 1);
  for (uint64_t i = 1; i <= 8; ++i) CHECK(s.Where(i) == "2");
  CHECK(remote.Recall(names) == "8");  // the next ones
}

TEST_CASE("without anything beyond, or while it is away, a recall says so at once") {
  SECTION("nothing") {
    WorldOptions options = SmallWorld();
    Remote remote(options);
    CHECK(remote.Recall({1}) == "nothing lies beyond the node");
    CHECK_FALSE(remote.s.store().snapshot().remote.has_value());
  }
  SECTION("away") {
    Remote remote;
    remote.s.world.remote().set_faults({.away = 1});
    CHECK(remote.Recall({1}) == "what lies beyond the node does not answer");
    CHECK(remote.counters().recalls_refused == 1);
  }
  SECTION("a drain") {
    Remote remote;
    remote.s.store().BeginDrain();
    CHECK(remote.Recall({1}) == "the daemon is draining");
  }
}

TEST_CASE("a drain leaves what waits to be written beyond the node, unless it is to write it") {
  WorldOptions options = WithRemote();
  options.store.remote_write_bytes_per_second = kBlockBytes;
  Remote remote(options);
  StoreTester& s = remote.s;
  for (uint64_t name = 1; name <= 8; ++name) CHECK(s.Put(name, 4096) == "stored");
  s.RunAll();
  const size_t written = s.world.bucket().size();
  REQUIRE(written < 8);
  CHECK(s.store().snapshot().remote_writes_left == 8 - written);
  const auto run_for_a_minute = [&] {
    for (int second = 0; second < 60; ++second) {
      s.world.clock().Advance(std::chrono::seconds(1));
      s.store().Tick();
      s.RunAll();
    }
  };
  s.store().BeginDrain();
  run_for_a_minute();
  CHECK(s.world.bucket().size() == written);
  CHECK(s.store().snapshot().remote_writes_left == 8 - written);
  s.store().BeginDrain(true);
  s.RunAll();
  s.store().BeginDrain();  // as the daemon ends: no more is begun
  const size_t by_then = s.world.bucket().size();
  run_for_a_minute();
  CHECK(s.world.bucket().size() == by_then);
  s.store().BeginDrain(true);
  run_for_a_minute();
  CHECK(s.world.bucket().size() == 8);
  CHECK(s.store().snapshot().remote_writes_left == 0);
  s.store().CheckInvariants();
}

TEST_CASE("a chunk whose write failed counts as not written until it is written or gone") {
  Remote remote;
  StoreTester& s = remote.s;
  const auto left = [&s] { return s.store().snapshot().remote_writes_left; };
  s.world.remote().set_faults({.write_error = 1});
  for (uint64_t name = 1; name <= 4; ++name) CHECK(s.Put(name, 4096) == "stored");
  s.Settle();
  // A place that takes writes was asked often enough.
  CHECK(remote.counters().failed_writes == 12);
  CHECK(left() == 4);
  s.store().BeginDrain(true);
  s.Settle();
  CHECK(left() == 4);
  s.store().CheckInvariants();
  CHECK(s.Delete({1}) == 1);
  s.RunAll();
  CHECK(left() == 3);
  s.world.remote().set_faults({});
  s.store().BeginDrain(true);
  s.Settle();
  CHECK(left() == 0);
  CHECK(s.world.bucket().size() == 3);
}

TEST_CASE("a chunk that a place did not take is offered again when it is used") {
  Remote remote;
  StoreTester& s = remote.s;
  s.world.remote().set_faults({.write_error = 1});
  CHECK(s.Put(1, 4096) == "stored");
  s.Settle();
  CHECK(s.world.bucket().empty());
  s.world.remote().set_faults({});
  s.Settle();
  CHECK(s.world.bucket().empty());
  s.Lookup({1}, LeaseMode::kNone);
  s.Settle();
  CHECK(s.world.bucket().size() == 1);
  CHECK(s.store().snapshot().remote_writes_left == 0);
}

TEST_CASE("a place that refuses all is tried again and again, and no chunk is spent on that") {
  Remote remote;
  StoreTester& s = remote.s;
  s.world.remote().set_faults({.write_error = 1, .away = 1});
  for (uint64_t name = 1; name <= 4; ++name) CHECK(s.Put(name, 4096) == "stored");
  for (int round = 0; round < 10; ++round) {
    s.world.remote().set_faults({.write_error = 1});
    s.store().Tick();  // it is asked again
    s.world.remote().set_faults({.write_error = 1, .away = 1});
    s.RunAll();
    CHECK(s.store().snapshot().remote_writes_left == 4);
  }
  CHECK(remote.counters().failed_writes >= 10);
  s.world.remote().set_faults({});
  s.Settle();
  CHECK(s.world.bucket().size() == 4);
  CHECK(s.store().snapshot().remote_writes_left == 0);
}

TEST_CASE("a durable put of what is only on its way from beyond the node is a put of its own") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  s.Settle();
  s.world.Kill();
  s.world.LoseArena();
  s.world.DriveLosesPower(0);
  s.world.SetAttached(0, false);
  s.world.Start();
  s.Connect();
  std::string answer = "waiting";
  remote.BeginReading({1}, &answer);
  CHECK(s.Put(1, 4096, {.durable = true}) == "stored");
  s.RunAll();
  CHECK(answer == "1");  // it came, without a waiter
  CHECK(s.Get(1) == "hit");
  s.store().CheckInvariants();
}

// The node's copy of chunk 1 is durable on an absent device. The device joins while an image of
// chunk 1 is on its way from beyond the node, or has come.
TEST_CASE("what a joining device holds is not lost to a recall") {
  Remote remote;
  StoreTester& s = remote.s;
  const auto there = [&s] { return s.world.index(0).Find(s.Id(1)).has_value(); };
  std::string joined = "waiting", answer = "waiting";
  const auto join = [&] {
    REQUIRE(s.world.Join(0, [&joined](const absl::Status& status) {
      joined = status.ok() ? "joined" : std::string(status.message());
    }));
  };
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  const auto former = s.world.bucket().begin()->second;
  SECTION("as the recall fails while somebody reads it") {
    REQUIRE(s.Durable(1) == "ok");
    remote.LoseNode();
    s.world.remote().set_faults({.delay = 1, .read_error = 1});
    remote.BeginReading({1}, &answer);
    ChunkReader reader = s.Pin(1);
    REQUIRE(reader);
    join();
    s.RunAll();
    CHECK(answer == "0");
    CHECK(joined == "joined");
    reader = ChunkReader();
  }
  SECTION("as another image comes, and is evicted") {
    s.Delete({1});
    s.Settle();
    REQUIRE(s.Put(1, 9000, {.durable = true}) == "stored");
    s.Settle();
    REQUIRE(s.Durable(1) == "ok");
    s.world.bucket()[s.Id(1)] = former;
    remote.LoseNode();
    REQUIRE(remote.Recall({1}) == "1");
    join();
    s.world.HoldIndex(false);
    s.world.device(0).set_options({.write_error = 1});  // it is never written back
    s.RunAll();
    CHECK(joined == "joined");
    s.FloodG2();
    s.world.device(0).set_options({});
  }
  s.Settle();
  s.store().CheckInvariants();
  CHECK(there());
  CHECK(s.Get(1) == "hit");
  CHECK(s.Durable(1) == "ok");
}

TEST_CASE("a put of what is on its way from beyond the node keeps its bytes") {
  Remote remote;
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096) == "stored");
  s.Settle();
  remote.LoseNode();
  s.world.remote().set_faults({.corrupt_read = 1});
  std::string answer = "waiting";
  remote.BeginReading({1}, &answer);
  CHECK(s.Put(1, 4096) == "stored");
  s.RunAll();
  CHECK(answer == "0");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("what is on its way to beyond the node takes nothing of what may be leased") {
  WorldOptions options = WithRemote();
  options.remote_faults.delay = 1;
  Remote remote(options);
  StoreTester& s = remote.s;
  CHECK(s.Put(1, 4096, {.durable = false}) == "stored");
  for (int i = 0; i < 20; ++i) s.world.RunOneAtRandom();
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  s.store().CheckInvariants();
  s.RunAll();
  CHECK(remote.counters().written_chunks == 1);
}

TEST_CASE("with second_use a chunk is written beyond the node once a lookup has found it") {
  WorldOptions options = WithRemote();
  options.store.remote_second_use = true;
  StoreTester s(options);
  for (const uint64_t name : {1, 2, 3}) CHECK(s.Put(name) == "stored");
  s.Settle();
  CHECK(s.world.bucket().empty());
  s.Lookup({1, 2}, LeaseMode::kNone);
  s.Settle();
  CHECK(s.world.bucket().size() == 2);
  CHECK(s.world.bucket().contains(s.Id(1)));
  s.Lookup({1, 2}, LeaseMode::kNone);  // once
  s.Settle();
  CHECK(s.store().snapshot().remote->offered_chunks == 2);
  // Another chunk in that one's slot has not been put.
  s.Delete({3});
  s.Settle();
  CHECK(s.Put(4, 4096, {.no_g3 = true}) == "stored");
  s.Lookup({4}, LeaseMode::kNone);
  s.Settle();
  CHECK(s.store().snapshot().remote->offered_chunks == 2);
}

}  // namespace kvkeep
