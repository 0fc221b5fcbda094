#include "tests/fakes/memory_index.h"

#include <catch2/catch.hpp>

#include "tests/tiers/index/records.h"

namespace kvkeep {
namespace {

void Add(MemoryIndex& index, uint32_t n) {
  REQUIRE(index.Commit({.adds = {NumberedRecord(n)}}).ok());
}

}  // namespace

TEST_CASE("MemoryIndex: what was committed outlives a kill") {
  MemoryIndex index;
  for (uint32_t n = 0; n < 10; ++n) Add(index, n);
  REQUIRE(index.Commit({.removes = {NumberedRecord(3).id}}).ok());
  index.Kill();
  const RecordMap found = ReadAll(index);
  CHECK(found.size() == 9);
  CHECK_FALSE(found.contains(NumberedRecord(3).id));
}

TEST_CASE("MemoryIndex: a power cut leaves what was synced and a beginning of the rest") {
  bool lost_none = false, lost_all = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryIndex index;
    for (uint32_t n = 0; n < 3; ++n) Add(index, n);
    REQUIRE(index.Sync({.sequence = CommitSequence(2)}).ok());
    for (uint32_t n = 3; n < 6; ++n) Add(index, n);
    REQUIRE(index.PutMeta("name", "value").ok());
    index.PowerCut(seed);
    const RecordMap found = ReadAll(index);
    REQUIRE(found.size() >= 3);
    for (uint32_t n = 0; n < found.size(); ++n) CHECK(found.contains(NumberedRecord(n).id));
    const bool meta = index.GetMeta("name")->has_value();
    if (meta) CHECK(found.size() == 6);
    lost_none |= meta;
    lost_all |= found.size() == 3;
    CHECK(index.ReadStableMark()->sequence == CommitSequence(2));
    CHECK(index.counted().lost_writes == 4 - (found.size() - 3) - meta);
    CHECK(index.unsynced_writes() == 0);
  }
  CHECK(lost_none);
  CHECK(lost_all);
}

TEST_CASE("MemoryIndex: a failed write is not applied, a failed sync promises nothing") {
  MemoryIndex index;
  index.SetFaults({.commit_refused = 1});
  CHECK(absl::IsUnavailable(index.Commit({.adds = {NumberedRecord(1)}})));
  index.SetFaults({.commit_error = 1});
  CHECK(absl::IsDataLoss(index.PutMeta("a", "b")));
  CHECK(ReadAll(index).empty());
  index.SetFaults({.sync_error = 1});
  Add(index, 1);
  CHECK(absl::IsDataLoss(index.Sync({.sequence = CommitSequence(1)})));
  CHECK(index.ReadStableMark()->sequence == CommitSequence(0));
  CHECK(index.unsynced_writes() == 1);
  index.Kill();
  CHECK(index.Sync({.sequence = CommitSequence(1)}).ok());
  CHECK(index.counted().refused == 1);
  CHECK(index.counted().errors == 2);
}

TEST_CASE("MemoryIndex: a sync that lies is believed until the power goes, or a true one follows") {
  for (const bool synced : {false, true}) {
    int lost = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      MemoryIndex index;
      index.SetFaults({.sync_lies = 1});
      Add(index, 1);
      CHECK(index.Sync({.sequence = CommitSequence(1)}).ok());
      CHECK(index.ReadStableMark()->sequence == CommitSequence(1));
      index.SetFaults({});
      if (synced) REQUIRE(index.Sync({.sequence = CommitSequence(1)}).ok());
      index.PowerCut(seed);
      lost += !index.Find(NumberedRecord(1).id).has_value();
    }
    CHECK((lost > 0) == !synced);
  }
}

TEST_CASE(
    "MemoryIndex: one that breaks takes nothing more; what failed may be there after a kill") {
  bool found = false, lost = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MemoryIndex index(seed);
    Add(index, 1);
    index.SetFaults({.commit_error = 1, .breaks = true});
    CHECK(absl::IsDataLoss(index.Commit({.adds = {NumberedRecord(2)}})));
    index.SetFaults({.breaks = true});
    CHECK(absl::IsDataLoss(index.Commit({.adds = {NumberedRecord(3)}})));
    CHECK(absl::IsDataLoss(index.Sync({.sequence = CommitSequence(1)})));
    CHECK(ReadAll(index).size() == 1);
    index.Kill();
    const RecordMap there = ReadAll(index);
    CHECK(there.contains(NumberedRecord(1).id));
    CHECK_FALSE(there.contains(NumberedRecord(3).id));
    (there.contains(NumberedRecord(2).id) ? found : lost) = true;
    Add(index, 4);
  }
  CHECK((found && lost));
}

TEST_CASE("MemoryIndex: a failed sync of one that breaks never leaves a mark without its records") {
  bool marked = false;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    MemoryIndex index(seed);
    Add(index, 1);
    index.SetFaults({.sync_error = 1, .breaks = true});
    CHECK(absl::IsDataLoss(index.Sync({.sequence = CommitSequence(1)})));
    index.Kill();
    if (index.ReadStableMark()->sequence != CommitSequence(1)) continue;
    marked = true;
    index.PowerCut(seed);
    CHECK(index.Find(NumberedRecord(1).id).has_value());
  }
  CHECK(marked);
}

TEST_CASE(
    "MemoryIndex: behind a hole in the log nothing is stable, and a dead process's end may go") {
  bool whole = false, shorter = false;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    MemoryIndex index(seed);
    Add(index, 1);
    REQUIRE(index.Sync({.sequence = CommitSequence(1)}).ok());
    Add(index, 2);
    index.DriveForgets(seed, /*open=*/true);
    Add(index, 3);
    REQUIRE(index.Sync({.sequence = CommitSequence(3)}).ok());
    CHECK(ReadAll(index).size() == 3);  // the cache has all of it
    CHECK(index.IsStable(NumberedRecord(1).id));
    const bool hole = index.has_hole();
    CHECK(index.IsStable(NumberedRecord(3).id) == !hole);
    index.Kill();
    const size_t found = ReadAll(index).size();
    CHECK(index.ReadStableMark()->sequence == CommitSequence(found == 3 ? 3 : 1));
    if (!hole) CHECK(found == 3);
    (found == 3 ? whole : shorter) = true;
    CHECK_FALSE(index.has_hole());
    index.PowerCut(seed);  // what a start found is in a table file
    CHECK(ReadAll(index).size() == found);
  }
  CHECK((whole && shorter));
}

TEST_CASE("MemoryIndex: of a sync that forgets all is there until the power goes") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MemoryIndex index(seed);
    Add(index, 1);
    index.SetFaults({.sync_forgets = 1});
    REQUIRE(index.Sync({.sequence = CommitSequence(1)}).ok());
    index.SetFaults({});
    REQUIRE(index.Sync({.sequence = CommitSequence(1)}).ok());
    CHECK_FALSE(index.IsStable(NumberedRecord(1).id));
    if (seed % 2 == 0) {
      index.Kill();
      CHECK(index.Find(NumberedRecord(1).id).has_value());
    } else {
      index.PowerCut(seed);
      CHECK(ReadAll(index).empty());
      CHECK(index.ReadStableMark()->sequence == CommitSequence(0));
    }
  }
}

TEST_CASE("MemoryIndex: a scan sees a snapshot, and counts damaged records without visiting them") {
  MemoryIndex index;
  for (uint32_t n = 0; n < 5; ++n) Add(index, n);
  index.DamageRecord(NumberedRecord(2).id);
  uint32_t next = 100;
  const auto scanned = index.Scan([&](const IndexRecord&) {
    Add(index, next++);
    return true;
  });
  REQUIRE(scanned.ok());
  CHECK(scanned->records == 4);
  CHECK(scanned->undecodable == 1);
}

}  // namespace kvkeep
