// Records in doubt after a kill or a power cut: how they become fewer, on disk too, and which are
// read first.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/tiers/store/store_tester.h"
#include "tiers/index/doubtful.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Doubtful Saved(StoreTester& s) {
  return DecodeDoubtful(s.world.index().GetMeta(kDoubtfulName).value());
}

bool InDoubt(StoreTester& s, uint64_t name) {
  return Saved(s).contains(s.world.index().Find(s.Id(name))->sequence);
}

// Returns the names from 0 to 9 that the index has in doubt.
std::vector<uint64_t> AllInDoubt(StoreTester& s) {
  std::vector<uint64_t> names;
  for (uint64_t name = 0; name < 10; ++name) {
    if (InDoubt(s, name)) names.push_back(name);
  }
  return names;
}

// Ten durable chunks, after a power cut and the first sync of the process after it.
void PutTenAndCut(StoreTester& s) {
  for (uint64_t i = 0; i < 10; ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.RunAll();
  }
  REQUIRE(s.Durable(9) == "ok");
  s.PowerCutAndStart();
  s.Pass(seconds(3));
}

}  // namespace

TEST_CASE("what was read whole is in doubt no more, after the next restart either") {
  StoreTester s;
  PutTenAndCut(s);
  CHECK(AllInDoubt(s).size() == 10);
  for (const uint64_t name : {3, 4, 7}) CHECK(s.Get(name) == "hit");
  const uint64_t before = s.world.index().counted().meta_writes;
  s.Pass(seconds(6));
  CHECK(AllInDoubt(s) == std::vector<uint64_t>{0, 1, 2, 5, 6, 8, 9});
  CHECK(Saved(s).ranges.size() == 3);
  CHECK(s.Get(5) == "hit");  // too late for that save
  s.KillAndStart();
  for (const uint64_t name : {3, 4, 7}) CHECK(s.Durable(name) == "ok");
  CHECK(s.Durable(5) == "NOT_FOUND");
  CHECK(s.Durable(0) == "NOT_FOUND");
  s.Pass(seconds(20));
  CHECK(s.world.index().counted().meta_writes <= before + 2);  // it did not change
}

TEST_CASE("what reads left in doubt is saved now and then, not after each, then no more") {
  StoreTester s;
  PutTenAndCut(s);
  s.Pass(seconds(10));
  const uint64_t before = s.world.index().counted().meta_writes;
  for (uint64_t name = 0; name < 10; ++name) {
    CHECK(s.Get(name) == "hit");
    s.Pass(milliseconds(900));
  }
  CHECK(s.world.index().counted().meta_writes <= before + 2);
  s.Pass(seconds(20));
  CHECK(s.world.index().counted().meta_writes <= before + 3);
  CHECK(Saved(s) == Doubtful());
  CHECK(s.store().Tick());  // at rest
}

TEST_CASE("what is gone or written anew is in doubt no more once the index has forgotten it") {
  StoreTester s;
  PutTenAndCut(s);
  std::map<uint64_t, CommitSequence> old;
  for (const uint64_t name : {0, 1}) old[name] = s.world.index().Find(s.Id(name))->sequence;
  CHECK(s.Delete({0}) == 1);
  CHECK(s.Put(1, 4096, {.durable = true}) == "stored");
  CHECK(s.Durable(1) == "ok");
  s.Pass(seconds(7));
  CHECK_FALSE(Saved(s).contains(old[0]));
  CHECK_FALSE(Saved(s).contains(old[1]));
  CHECK_FALSE(InDoubt(s, 1));
  CHECK(InDoubt(s, 2));
  s.KillAndStart();
  CHECK(s.Durable(1) == "ok");
  CHECK(s.Durable(2) == "NOT_FOUND");
}

TEST_CASE("what was read is in doubt on disk until the data was synced after that") {
  StoreTester s;
  PutTenAndCut(s);
  s.Pass(seconds(6));
  CHECK(s.Get(3) == "hit");
  s.world.device().set_options({.sync_error = 1});
  s.Pass(seconds(7));
  CHECK(s.counters().sync_failures > 0);
  CHECK(InDoubt(s, 3));
}

TEST_CASE("where reads may come from the kernel's cache they clear nothing on disk") {
  StoreTester s;
  s.world.disk(0).set_direct(false);
  PutTenAndCut(s);
  CHECK(s.Get(3) == "hit");
  s.Pass(seconds(7));
  CHECK(InDoubt(s, 3));
  s.KillAndStart();  // the same boot now
  CHECK(s.Get(4) == "hit");
  s.Pass(seconds(7));
  CHECK(InDoubt(s, 4));
  CHECK(s.Put(5, 4096, {.durable = true}) == "stored");  // not certain to be there: written anew
  s.Pass(seconds(7));
  CHECK_FALSE(InDoubt(s, 5));
}

TEST_CASE("a range of the version before is read, and narrowed to the records that there are") {
  StoreTester s;
  PutTenAndCut(s);
  for (uint64_t name = 0; name < 10; ++name) CHECK(s.Get(name) == "hit");
  s.Pass(seconds(7));
  std::string value(17, '\0');
  value[0] = 1;
  value[9] = 5;  // sequences 1 to 5
  REQUIRE(s.world.index().PutMeta(kDoubtfulName, value).ok());
  s.KillAndStart();
  std::vector<uint64_t> uncertain;
  for (uint64_t name = 0; name < 10; ++name) {
    if (s.Durable(name) != "ok") uncertain.push_back(name);
  }
  CHECK(uncertain == std::vector<uint64_t>{0, 1, 2, 3, 4});
  CHECK(s.Delete({0, 4}) == 2);
  s.Pass(seconds(7));
  CHECK(Saved(s) == Doubtful{{{CommitSequence(1), CommitSequence(4)}}});
}

TEST_CASE("where the index's log was damaged nothing is believed, after a second crash either") {
  StoreTester s;
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
  s.Settle();
  s.store().BeginDrain();
  bool stopped = false;
  s.store().SyncAll([&stopped](const absl::Status& status) { stopped = status.ok(); });
  s.RunAll();
  REQUIRE(stopped);
  REQUIRE(s.world.index().ReadStableMark()->clean);
  const bool power = GENERATE(false, true);
  s.world.Kill();
  s.world.index().DamageLog();
  s.world.Start();  // and nothing runs: no sync
  CHECK_FALSE(s.world.index().ReadStableMark()->clean);
  power ? s.PowerCutAndStart() : s.KillAndStart();
  for (uint64_t i = 0; i < 5; ++i) CHECK(s.Durable(i) == "NOT_FOUND");
  // New ones are in no doubt.
  CHECK(s.Put(7, 4096, {.durable = true}) == "stored");
  CHECK(s.Durable(7) == "ok");
  s.KillAndStart();
  CHECK(s.Durable(7) == "ok");
}

TEST_CASE("after a power cut the headers of what was used last are read first") {
  WorldOptions options = SmallWorld();
  StoreTester s(options);
  for (uint64_t i = 0; i < 60; ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.RunAll();
  }
  REQUIRE(s.Durable(59) == "ok");
  for (const uint64_t name : {5, 1}) s.Touch({name});
  s.Pass(seconds(61));
  REQUIRE(s.Put(60, 4096, {.durable = true}) == "stored");
  REQUIRE(s.Durable(60) == "ok");  // so the order is synced, too
  s.world.PowerCut();
  s.world.Start();
  // The first pump hands out as many reads as allowed; none has ended.
  s.Connect();
  const auto read = [&s](uint64_t name) { return s.Where(name) == "3"; };
  const auto count = [&read](uint64_t from, uint64_t end) {
    uint64_t there = 0;
    for (uint64_t i = from; i < end; ++i) there += read(i);
    return there;
  };
  while (count(0, 60) < 10) REQUIRE(s.world.RunOneAtRandom());
  CHECK(count(0, 60) == 10);
  CHECK(count(6, 16) + count(2, 5) + count(0, 1) == 0);  // the oldest come last
  s.RunAll();
  for (uint64_t i = 0; i < 60; ++i) CHECK(read(i));
}

TEST_CASE("the scrub reads what is in doubt first, the most recently used before the others") {
  StoreTester s;
  for (uint64_t i = 0; i < 10; ++i) {
    REQUIRE(s.Put(i, 4096, {.durable = true}) == "stored");
    s.RunAll();
  }
  REQUIRE(s.Durable(9) == "ok");
  for (const uint64_t name : {2, 6}) s.Touch({name});
  s.Pass(seconds(61));
  REQUIRE(s.Put(10, 4096, {.durable = true}) == "stored");
  REQUIRE(s.Durable(10) == "ok");  // so the order is synced, too
  s.PowerCutAndStart();
  s.Pass(seconds(1));
  s.store().ScrubRound(2 * kBlockBytes);  // a chunk a second
  s.Pass(milliseconds(3900));
  CHECK(s.counters().scrubbed_chunks >= 3);
  CHECK(s.counters().scrubbed_chunks < 6);
  s.store().ScrubRound(0);
  std::vector<uint64_t> certain;
  for (uint64_t name = 0; name < 10; ++name) {
    if (s.Durable(name) == "ok") certain.push_back(name);
  }
  CHECK(std::set<uint64_t>(certain.begin(), certain.end()).contains(6));
  CHECK(std::set<uint64_t>(certain.begin(), certain.end()).contains(2));
  for (const uint64_t name : certain) CHECK((name == 6 || name == 2 || name >= 7));
}

}  // namespace kvkeep
