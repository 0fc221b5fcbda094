// G3's order of eviction over a restart: only its changes are saved, and all of it comes back.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/tiers/store/store_tester.h"
#include "tiers/base/bytes.h"
#include "tiers/store/saved_recency.h"

namespace kvkeep {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using store_internal::AdoptedChunk;
using store_internal::FormerRecency;
using store_internal::SavedRecency;

void PutSome(StoreTester& s, uint64_t count, uint64_t from = 0) {
  for (uint64_t i = from; i < from + count; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
}

uint64_t Entries(StoreTester& s) { return s.world.index().counted().recency_entries; }

// Returns the saved recency of a chunk; nullopt: no entry.
std::optional<uint64_t> Saved(StoreTester& s, uint64_t name) {
  const std::map<uint64_t, uint64_t> all = s.world.index().Recency();
  const auto found = all.find(s.world.index().Find(s.Id(name))->sequence.value());
  if (found == all.end()) return std::nullopt;
  return found->second;
}

// The names of the chunks with an entry, the first to go first.
std::vector<uint64_t> SavedOrder(StoreTester& s, uint64_t names) {
  std::vector<uint64_t> order;
  for (uint64_t name = 0; name < names; ++name) {
    if (Saved(s, name).has_value()) order.push_back(name);
  }
  std::sort(order.begin(), order.end(),
            [&s](uint64_t a, uint64_t b) { return *Saved(s, a) < *Saved(s, b); });
  return order;
}

// The value of the earlier version.
std::string InVersion(char version, const std::vector<uint64_t>& sequences) {
  std::string value(1, version);
  for (const uint64_t one : sequences) {
    value.resize(value.size() + sizeof(uint64_t));
    StoreAt<uint64_t>(reinterpret_cast<std::byte*>(value.data() + value.size() - sizeof(uint64_t)),
                      one);
  }
  return value;
}

// Returns sequences 1 to 9 in the order of eviction.
std::string Order(MemoryIndex& index) {
  std::vector<AdoptedChunk> adopted;
  for (uint32_t i = 1; i <= 9; ++i) {
    adopted.push_back({.sequence = CommitSequence(i), .slot = ChunkSlot(i)});
  }
  SavedRecency::Read(index, adopted);
  std::string order;
  for (const AdoptedChunk& chunk : adopted) {
    order.push_back(static_cast<char>('0' + CommitSequence(chunk.sequence).value()));
  }
  return order;
}

std::string OrderOfFormer(const std::string& value) {
  MemoryIndex index;
  REQUIRE(index.PutMeta(FormerRecency::kName, value).ok());
  const std::string order = Order(index);
  CHECK_FALSE(index.GetMeta(FormerRecency::kName)->has_value());
  CHECK(index.Recency().size() == 9);
  CHECK(Order(index) == order);  // by the entries now
  return order;
}

void Save(MemoryIndex& index, const std::vector<RecencyDelta>& deltas) {
  REQUIRE(index.SaveRecency(deltas).ok());
}

}  // namespace

TEST_CASE("a daemon at rest writes nothing, before and after a restart") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(minutes(2));
  const MemoryIndex::Stats saved = s.world.index().counted();
  CHECK(saved.recency_entries == 10);
  CHECK(s.counters().recency_saved_chunks == 10);
  CHECK(s.counters().recency_saved_bytes == 10 * 9);
  s.Pass(minutes(10));
  CHECK(s.world.index().counted().recency_writes == saved.recency_writes);
  CHECK(s.world.index().counted().meta_writes == saved.meta_writes);
  CHECK(s.world.index().counted().commits == saved.commits);
  CHECK(s.world.index().counted().syncs == saved.syncs);
  s.KillAndStart();
  s.Pass(seconds(5));
  const MemoryIndex::Stats started = s.world.index().counted();
  s.Pass(minutes(10));
  CHECK(s.world.index().counted().recency_writes == saved.recency_writes);
  CHECK(s.world.index().counted().meta_bytes == started.meta_bytes);
}

TEST_CASE("what is touched is saved by itself, once however often it was, and nothing else") {
  StoreTester s;
  PutSome(s, 20);
  s.Pass(seconds(61));
  const uint64_t before = Entries(s);
  for (int i = 0; i < 3; ++i) s.Touch({3});
  s.Touch({11});
  s.Pass(seconds(61));
  CHECK(Entries(s) == before + 2);
  CHECK(*Saved(s, 3) > *Saved(s, 19));
  CHECK(*Saved(s, 11) > *Saved(s, 3));
  CHECK(s.counters().recency_walks == 0);
}

TEST_CASE("what was saved compares over restarts, whenever it was saved") {
  StoreTester s;
  PutSome(s, 6);
  s.Pass(seconds(61));
  s.Touch({1});
  s.Pass(seconds(61));
  s.KillAndStart();
  s.Touch({4});
  s.Pass(seconds(61));
  s.KillAndStart();
  s.Touch({0});
  s.Pass(seconds(61));
  CHECK(SavedOrder(s, 6) == std::vector<uint64_t>{2, 3, 5, 1, 4, 0});
  // Chunks that came after the last save go last, and stay before chunks that are touched later.
  PutSome(s, 1, /*from=*/6);
  s.KillAndStart();
  s.Touch({3});
  s.Pass(seconds(61));
  s.KillAndStart();
  CHECK(SavedOrder(s, 7) == std::vector<uint64_t>{2, 5, 1, 4, 0, 6, 3});
}

TEST_CASE("the order that was saved is the order in which chunks go after a restart") {
  WorldOptions options = SmallWorld();
  options.device_blocks = {128};
  StoreTester s(options);
  PutSome(s, 40);
  s.Pass(seconds(61));
  for (uint64_t i = 0; i < 8; ++i) s.Touch({i});
  s.Pass(seconds(61));
  s.KillAndStart();
  PutSome(s, 20, /*from=*/100);
  const auto there = [&s](uint64_t name) { return s.world.index().Find(s.Id(name)).has_value(); };
  uint64_t gone = 0;
  for (uint64_t i = 8; i < 40; ++i) gone += !there(i);
  CHECK(gone > 5);
  for (uint64_t i = 0; i < 8; ++i) CHECK(there(i));
  for (uint64_t i = 100; i < 120; ++i) CHECK(there(i));
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
  CHECK(*Saved(s, 9) < *Saved(s, 0));  // only the first of all touches is saved
  s.Pass(seconds(61));
  CHECK(SavedOrder(s, 10) == std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a save that the index refused is made again, of all that it had and no more") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(seconds(61));
  const std::map<uint64_t, uint64_t> before = s.world.index().Recency();
  s.Touch({3});
  s.world.index().SetFaults({.commit_refused = 1});
  s.Pass(seconds(61));
  CHECK(s.world.index().Recency() == before);
  s.world.index().SetFaults({});
  s.Touch({5});
  const uint64_t entries = Entries(s);
  s.Pass(seconds(61));
  CHECK(Entries(s) == entries + 2);
  CHECK(s.counters().recency_walks == 1);
  CHECK(*Saved(s, 3) > *Saved(s, 9));
  CHECK(*Saved(s, 5) > *Saved(s, 3));
}

TEST_CASE("where more was touched than is remembered, all are looked at and those are saved") {
  WorldOptions options = SmallWorld();
  options.recency_chunks = 4;
  StoreTester s(options);
  PutSome(s, 40);
  s.Pass(seconds(61));
  CHECK(s.counters().recency_walks == 1);
  const uint64_t entries = Entries(s);
  CHECK(entries == 40);
  for (uint64_t i = 0; i < 6; ++i) s.Touch({i});
  s.Pass(seconds(61));
  CHECK(s.counters().recency_walks == 2);
  CHECK(Entries(s) == entries + 6);
  for (uint64_t i = 0; i < 6; ++i) CHECK(*Saved(s, i) > *Saved(s, 39));
  s.Touch({7});
  s.Pass(seconds(61));
  CHECK(s.counters().recency_walks == 2);
  CHECK(Entries(s) == entries + 7);
}

TEST_CASE("an entry goes with its record, and one without a record at the next start") {
  StoreTester s;
  PutSome(s, 10);
  s.Pass(seconds(61));
  const uint64_t sequence = s.world.index().Find(s.Id(4))->sequence.value();
  REQUIRE(s.world.index().Recency().contains(sequence));
  CHECK(s.Delete({4}) == 1);
  s.Settle();
  CHECK_FALSE(s.world.index().Recency().contains(sequence));
  CHECK(s.world.index().Recency().size() == 9);
  Save(s.world.index(), {{CommitSequence(999), 7}, {CommitSequence(1000), UINT64_MAX}});
  s.KillAndStart();
  CHECK(s.world.index().Recency().size() == 9);
  CHECK(s.counters().recency_dropped == 2);
}

TEST_CASE("a stop saves what was touched last") {
  StoreTester s;
  PutSome(s, 5);
  s.Pass(seconds(61));
  s.Touch({2});
  s.store().BeginDrain();
  bool stopped = false;
  s.store().SyncAll([&stopped](const absl::Status& status) { stopped = status.ok(); });
  s.RunAll();
  REQUIRE(stopped);
  CHECK(SavedOrder(s, 5).back() == 2);
}

TEST_CASE("what a former version saved is taken over once, in its order") {
  CHECK(OrderOfFormer(InVersion(1, {5, 2, 4})) == "524136789");  // all others came later
  CHECK(OrderOfFormer(InVersion(2, {6, 5, 2, 4})) == "136524789");  // 7 and on came later
  CHECK(OrderOfFormer(InVersion(2, {9})) == "123456789");
  for (const std::string& damaged : {std::string(), std::string("x"), InVersion(3, {5, 2, 4}),
                                     InVersion(1, {5, 2, 4}).substr(0, 20), std::string(1, 2)}) {
    CHECK(OrderOfFormer(damaged) == "123456789");
  }
}

TEST_CASE("a former order that the index took in part, or not, is the same at every start") {
  MemoryIndex index;
  REQUIRE(index.PutMeta(FormerRecency::kName, InVersion(1, {3, 1, 5, 9, 2})).ok());
  index.SetFaults({.commit_refused = 1});
  CHECK(Order(index) == "315924678");
  index.SetFaults({});
  CHECK(index.Recency().empty());
  CHECK(index.GetMeta(FormerRecency::kName)->has_value());
  Save(index, {{CommitSequence(3), 0}, {CommitSequence(5), 1000}});  // touched in that process
  CHECK(Order(index) == "319246785");
  CHECK_FALSE(index.GetMeta(FormerRecency::kName)->has_value());
  CHECK(Order(index) == "319246785");
}

TEST_CASE("entries are the order, ties from the newest record on, and damaged ones are none") {
  MemoryIndex index;
  Save(index, {{CommitSequence(2), 7}, {CommitSequence(3), 7}, {CommitSequence(4), 6},
               {CommitSequence(5), UINT64_MAX}});
  CHECK(Order(index) == "432156789");
}

}  // namespace kvkeep
