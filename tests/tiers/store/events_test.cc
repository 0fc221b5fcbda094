// Events: a reader that applies them in order has what lookups find, whatever was missed meanwhile.
#include <catch2/catch.hpp>

#include "tests/sim/event_mirror.h"
#include "tests/tiers/store/store_tester.h"
#include "tests/tiers/store/warm_world.h"

namespace kvkeep {
TEST_CASE("a reader is told of what is there, then of what comes and goes, tier by tier") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  EventMirror mirror(s.store().Watch(s.session, s.ns).value());
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 1);
  CHECK(mirror.whole == 1);
  CHECK(mirror.Where(s.Id(1)) == "23");

  REQUIRE(s.Put(2, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(2)) == "2");
  CHECK(mirror.told == 3);  // nothing twice
  s.FloodG2();
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)) == "3");
  CHECK(mirror.Where(s.Id(2)).empty());
  REQUIRE(s.Get(1) == "hit");
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)) == "23");
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)).empty());
  CHECK(mirror.begun == 1);
}

TEST_CASE("a chunk that is replaced under readers is told of as it is found") {
  StoreTester s;
  EventMirror mirror(s.store().WatchAll());
  REQUIRE(s.Put(1) == "stored");
  const ChunkReader held = s.Pin(1);
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)).empty());
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)) == s.Where(1));
  CHECK(mirror.there().size() == 2);
}

TEST_CASE("who falls behind the log is told so, and begins anew with what is there") {
  WorldOptions options = SmallWorld();
  options.store.events.log_entries = 4;
  StoreTester s(options);
  EventMirror mirror(s.store().WatchAll());
  REQUIRE(mirror.Read().ok());
  for (uint64_t i = 1; i <= 4; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 1);  // as many as there is room for
  for (uint64_t i = 5; i <= 9; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 2);
  CHECK(s.counters().events_missed == 1);
  CHECK(s.counters().event_restarts == 1);
  for (uint64_t i = 1; i <= 9; ++i) CHECK(mirror.Where(s.Id(i)) == "2");
}

TEST_CASE("a snapshot in pages, with changes between them, ends with what is there") {
  WorldOptions options = SmallWorld();
  options.hold_work = 8;  // a few chunks a page
  StoreTester s(options);
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  EventMirror mirror(s.store().WatchAll());
  uint64_t pages = 0;
  for (; mirror.whole == 0; ++pages) {
    REQUIRE(mirror.Read(1).ok());
    if (pages >= 4) continue;  // behind the walk, and ahead of it
    REQUIRE(s.Delete({pages, 19 - pages}) == 2);
    REQUIRE(s.Put(100 + pages) == "stored");
    s.Settle();
  }
  REQUIRE(mirror.Read().ok());
  CHECK(pages > 5);
  CHECK(mirror.begun == 1);
  for (uint64_t i = 0; i < 104; ++i) CHECK(mirror.Where(s.Id(i)) == s.Where(i));
}

TEST_CASE("a device that goes takes its chunks, and brings them when it is back") {
  StoreTester s;
  for (uint64_t i = 1; i <= 4; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.FloodG2();
  EventMirror mirror(s.store().WatchAll());
  REQUIRE(mirror.Read().ok());
  REQUIRE(mirror.Where(s.Id(1)) == "3");
  s.world.SetGone(0, true);
  for (uint64_t i = 2; i <= 4; ++i) s.Get(i);  // it fails, and is left alone then
  REQUIRE(s.Where(1).empty());
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 2);
  CHECK(mirror.Where(s.Id(1)).empty());
  s.world.SetGone(0, false);
  s.Pass(std::chrono::seconds(31));  // it is tried again
  REQUIRE(s.Where(1) == "3");
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 3);
  CHECK(mirror.Where(s.Id(1)) == "3");
}

TEST_CASE("what others do runs nobody who waits out of the log") {
  WorldOptions options = SmallWorld();
  options.store.events.log_entries = 4;
  StoreTester s(options);
  EventMirror mirror(s.store().Watch(s.session, s.ns).value());
  REQUIRE(mirror.Read().ok());
  bool woken = false;
  mirror.reader().WhenMore([&] { woken = true; });
  const NamespaceDigest own = s.ns;
  s.ns = s.store().OpenNamespace(s.session, {.model = "another", .tokens_per_chunk = 16}).value();
  for (uint64_t i = 1; i <= 9; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  CHECK_FALSE(woken);
  s.ns = own;
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  CHECK(woken);
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.begun == 1);
  CHECK(mirror.Where(s.Id(1)) == "2");
  CHECK(s.counters().events_missed == 0);
}

TEST_CASE("a reader that waits is woken by what it wants to know, and by nothing else") {
  StoreTester s;
  const NamespaceDigest other =
      s.store().OpenNamespace(s.session, {.model = "other", .tokens_per_chunk = 16}).value();
  EventMirror mine(s.store().Watch(s.session, s.ns).value());
  EventMirror theirs(s.store().Watch(s.session, other).value());
  REQUIRE(mine.Read().ok());
  REQUIRE(theirs.Read().ok());
  int woken = 0, others_woken = 0;
  mine.reader().WhenMore([&woken] { ++woken; });
  theirs.reader().WhenMore([&others_woken] { ++others_woken; });
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  REQUIRE(s.Put(2, 4096, {.no_g3 = true}) == "stored");
  CHECK(woken == 1);
  CHECK(others_woken == 0);
  mine.reader().WhenMore([&woken] { ++woken; });
  CHECK(woken == 2);  // there is more already
  REQUIRE(mine.Read().ok());
  CHECK(mine.told == 2);
  REQUIRE(theirs.Read().ok());
  CHECK(theirs.told == 0);
  theirs = EventMirror(EventReader());
  CHECK(others_woken == 1);  // it is gone
}

TEST_CASE("events end with the session, and are refused where it may not read") {
  StoreTester s;
  EventMirror mirror(s.store().Watch(s.session, s.ns).value());
  REQUIRE(mirror.Read().ok());
  int woken = 0;
  mirror.reader().WhenMore([&woken] { ++woken; });
  s.store().CloseSession(s.session);
  CHECK(woken == 1);
  CHECK(absl::IsFailedPrecondition(mirror.Read()));
  CHECK(absl::IsFailedPrecondition(s.store().Watch(s.session, s.ns).status()));

  const SessionToken writer =
      s.store().OpenSession({.client_name = "w", .grants = {.read = false}}).value();
  const NamespaceDigest ns =
      s.store().OpenNamespace(writer, {.model = "m", .tokens_per_chunk = 16}).value();
  CHECK(absl::IsPermissionDenied(s.store().Watch(writer, ns).status()));
  s.Connect();
  CHECK(absl::IsFailedPrecondition(s.store().Watch(s.session, ns).status()));  // not opened
}

TEST_CASE("readers are limited, and without one the log has no memory to write to") {
  WorldOptions options = SmallWorld();
  options.store.events.max_readers = 1;
  StoreTester s(options);
  auto first = std::make_unique<EventMirror>(s.store().Watch(s.session, s.ns).value());
  CHECK(absl::IsResourceExhausted(s.store().Watch(s.session, s.ns).status()));
  CHECK(s.counters().event_readers_refused == 1);
  REQUIRE(first->Read().ok());
  first.reset();
  REQUIRE(s.Put(1, 4096, {.no_g3 = true}) == "stored");
  EventMirror second(s.store().Watch(s.session, s.ns).value());
  REQUIRE(second.Read().ok());
  CHECK(second.Where(s.Id(1)) == "2");
  CHECK(s.counters().events_told == 1);
}

TEST_CASE("after a restart the snapshot has what both tiers kept") {
  WorldOptions options = SmallWorld();
  options.arena_outlives = true;
  StoreTester s(options);
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Put(2, 4096, {.no_g3 = true}) == "stored");
  s.Settle();
  s.KillAndStart();
  {
    EventMirror mirror(s.store().WatchAll());
    REQUIRE(mirror.Read().ok());
    CHECK(mirror.Where(s.Id(1)) == "23");
    CHECK(mirror.Where(s.Id(2)) == "2");
  }
  s.PowerCutAndStart();  // headers are to be read first: nothing is promised before
  EventMirror mirror(s.store().WatchAll());
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)).empty());
  s.Settle();
  REQUIRE(mirror.Read().ok());
  CHECK(mirror.Where(s.Id(1)) == "3");
}

namespace {

// Returns "tail" if it is what StoreTester put, else the error.
std::string Metadata(StoreTester& s, uint64_t name) {
  std::string answer = "nothing";
  s.store().ReadMetadata(s.Id(name), [&answer](absl::StatusOr<std::string> metadata) {
    answer = metadata.ok() ? *metadata : absl::StatusCodeToString(metadata.status().code());
  });
  s.RunAll();
  return answer;
}

}  // namespace

TEST_CASE("metadata is read from where the chunk is, and brings it nowhere") {
  StoreTester s;
  const std::string tail(5000, 't');  // of two blocks and a bit
  REQUIRE(s.Put(1, 4096, {.tail_bytes = 5000}) == "stored");
  REQUIRE(s.Put(2) == "stored");
  CHECK(Metadata(s, 1) == tail);
  CHECK(Metadata(s, 2).empty());
  CHECK(Metadata(s, 3) == "NOT_FOUND");
  s.Settle();
  s.FloodG2();
  REQUIRE(s.Where(1) == "3");
  CHECK(Metadata(s, 1) == tail);
  CHECK(s.Where(1) == "3");
  CHECK(s.counters().promotions == 0);
  // Metadata of another chunk that came to lie there, or damaged metadata, is never reported.
  s.OnDisk(s.DeviceBlock(1), 1)[0] ^= std::byte{1};
  CHECK(Metadata(s, 1) == "NOT_FOUND");
  s.OnDisk(s.DeviceBlock(1), 1)[0] ^= std::byte{1};
  s.OnDisk(s.DeviceBlock(1) + 2, 1)[100] ^= std::byte{1};
  CHECK(Metadata(s, 1) == "NOT_FOUND");
  s.world.SetGone(0, true);
  CHECK(Metadata(s, 1) == "UNAVAILABLE");
}

TEST_CASE("metadata that a restart left in G2 alone is told when all of the chunk is right") {
  for (const bool damaged : {false, true}) {
    StoreTester s(WarmWorld(/*with_device=*/false));
    REQUIRE(s.Put(1, 5000, {.tail_bytes = 50}) == "stored");
    s.world.Kill();
    // Its payload is changed: the tail itself is as it was.
    if (damaged) BlocksAt(s, MarkedBlocks(s).at(0), 3)[kBlockBytes] ^= std::byte{4};
    s.world.Start();
    s.Connect();
    CHECK(Metadata(s, 1) == (damaged ? "DATA_LOSS" : std::string(50, 't')));
  }
}

TEST_CASE("metadata of an encrypted chunk is told from G2 alone") {
  WorldOptions options = SmallWorld();
  options.encryption = WorldOptions::Encryption::kOn;
  StoreTester s(options);
  REQUIRE(s.Put(1, 4096, {.tail_bytes = 50}) == "stored");
  s.Settle();
  CHECK(Metadata(s, 1) == std::string(50, 't'));
  s.FloodG2();
  REQUIRE(s.Where(1) == "3");
  CHECK(Metadata(s, 1) == "FAILED_PRECONDITION");
}

}  // namespace kvkeep
