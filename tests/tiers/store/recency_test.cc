// The order of eviction of G3 over a restart: saved when it changed, and never without a bound.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/tiers/store/store_tester.h"
#include "tiers/store/saved_recency.h"

namespace kvkeep {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using store_internal::SavedRecency;

std::string SavedValue(StoreTester& s) {
  return s.world.index().GetMeta(SavedRecency::kName)->value_or("");
}

void PutSome(StoreTester& s, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
}

std::string InVersion(char version, const std::vector<uint64_t>& sequences) {
  std::string value = SavedRecency::Begin(std::nullopt);
  value[0] = version;
  for (const uint64_t one : sequences) SavedRecency::AddTo(value, CommitSequence(one));
  return value;
}

// Sequences 1 to 9 in the order in which they go.
std::string Order(const std::string& value) {
  MemoryIndex index;
  REQUIRE(index.PutMeta(SavedRecency::kName, value).ok());
  const SavedRecency saved = SavedRecency::Read(index);
  std::string order = "123456789";
  std::sort(order.begin(), order.end(), [&](char a, char b) {
    return saved.RankOf(CommitSequence(a - '0')) < saved.RankOf(CommitSequence(b - '0'));
  });
  return order;
}

}  // namespace

TEST_CASE("a daemon at rest writes nothing, before and after a restart") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(minutes(2));
  const MemoryIndex::Stats saved = s.world.index().counted();
  CHECK(saved.meta_writes > 0);
  s.Pass(minutes(10));
  CHECK(s.world.index().counted().meta_writes == saved.meta_writes);
  CHECK(s.world.index().counted().commits == saved.commits);
  CHECK(s.world.index().counted().syncs == saved.syncs);
  s.KillAndStart();
  s.Pass(seconds(5));
  const MemoryIndex::Stats started = s.world.index().counted();
  s.Pass(minutes(10));
  CHECK(s.world.index().counted().meta_bytes == started.meta_bytes);
  const std::string before = SavedValue(s);
  s.Touch({3});
  s.Pass(seconds(61));
  CHECK(SavedValue(s) != before);
  CHECK(SavedValue(s).size() == before.size());
}

TEST_CASE("of an index that hangs one save waits, and what changed meanwhile is saved after it") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(seconds(61));
  s.world.HoldIndex(true);
  for (uint64_t i = 0; i < 10; ++i) {
    s.Touch({i});
    s.Pass(seconds(61));
  }
  CHECK(s.world.index_executor().size() == 1);
  s.world.HoldIndex(false);
  s.RunAll();
  const std::string late = SavedValue(s);
  s.Pass(seconds(61));
  CHECK(SavedValue(s) != late);
}

TEST_CASE("a save that the index refused is made again") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(seconds(61));
  const std::string before = SavedValue(s);
  s.Touch({3});
  s.world.index().SetFaults({.commit_refused = 1});
  s.Pass(seconds(61));
  CHECK(SavedValue(s) == before);
  s.world.index().SetFaults({});
  s.Pass(seconds(61));
  CHECK(SavedValue(s) != before);
}

TEST_CASE("of more chunks than a value holds those that go last are saved, the rest goes first") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {128};
  options.recency_chunks = 10;
  StoreTester s(options);
  PutSome(s, 40);
  for (uint64_t i = 0; i < 8; ++i) s.Touch({i});
  s.Pass(seconds(61));
  CHECK(s.counters().recency_cuts >= 1);
  CHECK(SavedValue(s).size() <= 1 + 8 + 8 * 10);
  CHECK(SavedValue(s).size() >= 1 + 8 + 8 * 8);
  s.KillAndStart();
  for (uint64_t i = 100; i < 120; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
  const auto there = [&s](uint64_t name) { return s.world.index().Find(s.Id(name)).has_value(); };
  uint64_t gone = 0;
  for (uint64_t i = 8; i < 40; ++i) gone += !there(i);
  CHECK(gone > 5);
  for (uint64_t i = 0; i < 8; ++i) CHECK(there(i));
  for (uint64_t i = 100; i < 120; ++i) CHECK(there(i));
}

TEST_CASE("what was saved is read in both versions, and what cannot be read is no order") {
  CHECK(Order(InVersion(1, {5, 2, 4})) == "524136789");  // all others came later
  CHECK(Order(InVersion(2, {6, 5, 2, 4})) == "136524789");  // 7 and on came later, the others not
  CHECK(Order(InVersion(2, {9})) == "123456789");
  for (const std::string& damaged : {std::string(), std::string("x"), InVersion(3, {5, 2, 4}),
                                     InVersion(1, {5, 2, 4}).substr(0, 20), std::string(1, 2)}) {
    CHECK(Order(damaged) == "123456789");
  }
}

}  // namespace kvkeep
