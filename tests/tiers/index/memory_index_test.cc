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
