#include "tiers/store/index_commits.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/tiers/store/run_tasks.h"

namespace kvkeep::store_internal {
namespace {

constexpr MonotonicTime kSomeTime = std::chrono::seconds(100);

ChunkId ChunkOf(uint8_t name) {
  ChunkId id;
  id.key.bytes[0] = name;
  return id;
}

ExtentList Blocks(uint64_t first, uint64_t count) {
  return {Extent{BlockNumber(first), BlockCount(count)}};
}

PendingAdd AddOf(uint8_t name) {
  return {.slot = ChunkSlot(name), .record = {.id = ChunkOf(name)}, .parent = std::nullopt};
}

PendingRemove RemoveOf(uint8_t name, uint64_t blocks = 1, uint64_t sequence = 0) {
  return {.id = ChunkOf(name),
          .extents = Blocks(name, blocks),
          .sequence = CommitSequence(sequence)};
}

// One device's commits; every added chunk is still wanted.
struct Committing {
  CommitBatch Take() {
    CommitBatch batch = commits.TakeRemoves();
    while (std::optional<PendingAdd> add = commits.TakeAddFor(batch)) {
      batch.adds.push_back(*std::move(add));
    }
    return batch;
  }
  // The index keeps another record under the names of `keeps`.
  CommitBatch Begin(const std::vector<ChunkId>& keeps = {}) {
    CommitBatch batch = Take();
    commits.Begin(
        batch,
        [&](const ChunkId& id) {
          return std::find(keeps.begin(), keeps.end(), id) != keeps.end();
        },
        recency);
    return batch;
  }
  void Commit() {
    const CommitBatch batch = Begin();
    commits.NoteCommitted(batch);
    for (const PendingRemove& remove : batch.removes) commits.EndFreeing(remove.extents);
    commits.End();
  }
  IndexCommits commits;
  UnsavedRecency recency;
};

}  // namespace

TEST_CASE("all removals go before any add, and no batch has more records than it may") {
  Committing device;
  device.commits.Add(AddOf(200));
  const size_t most = IndexCommits::kMostRecords;
  for (size_t i = 0; i < most + 1; ++i) device.commits.Remove(RemoveOf(static_cast<uint8_t>(i)));
  const CommitBatch first = device.Take();
  CHECK(first.removes.size() == most);
  CHECK(first.adds.empty());
  CHECK(first.removes.front().id == ChunkOf(0));
  for (size_t i = 0; i < most; ++i) device.commits.Add(AddOf(static_cast<uint8_t>(100 + i)));
  const CommitBatch second = device.Take();
  CHECK(second.removes.size() == 1);
  REQUIRE(second.adds.size() == most - 1);
  CHECK(second.adds.front().slot == ChunkSlot(200));
  CHECK(device.commits.adds().size() == 2);
}

TEST_CASE("one batch is under way at a time, and none is begun of nothing") {
  Committing device;
  CHECK_FALSE(device.commits.MayBegin(kSomeTime));
  device.commits.Add(AddOf(1));
  CHECK(device.commits.MayBegin(kSomeTime));
  const CommitBatch batch = device.Begin();
  device.commits.Add(AddOf(2));
  CHECK(device.commits.under_way());
  CHECK_FALSE(device.commits.MayBegin(kSomeTime));
  device.commits.NoteCommitted(batch);
  device.commits.End();
  CHECK(device.commits.MayBegin(kSomeTime));
}

TEST_CASE("sequences go on above all that the index has") {
  Committing device;
  device.commits.BeginJoin(CommitSequence(5));
  device.commits.NoteRecord(CommitSequence(9));
  device.commits.NoteRecord(CommitSequence(7));
  CHECK(device.commits.committed() == CommitSequence(5));
  device.commits.EndJoin();
  CHECK(device.commits.committed() == CommitSequence(9));
  CHECK(device.commits.settled());
  device.commits.Add(AddOf(1));
  device.commits.Add(AddOf(2));
  const CommitBatch batch = device.Begin();
  CHECK(batch.adds[0].record.sequence == CommitSequence(10));
  CHECK(batch.adds[1].record.sequence == CommitSequence(11));
  CHECK(batch.last == CommitSequence(11));
  CHECK(device.commits.committed() == CommitSequence(9));
  device.commits.NoteCommitted(batch);
  CHECK_FALSE(device.commits.settled());
  device.commits.End();
  CHECK(device.commits.committed() == CommitSequence(11));
  CHECK(device.commits.settled());
}

TEST_CASE("a refused batch waits as it was, for a while, and is numbered anew") {
  Committing device;
  device.commits.Remove(RemoveOf(1));
  device.commits.Remove(RemoveOf(2));
  device.commits.Add(AddOf(3));
  CommitBatch batch = device.Begin();
  device.commits.Remove(RemoveOf(4));
  device.commits.WaitToRetry(kSomeTime);
  for (; !batch.removes.empty(); batch.removes.pop_back()) {
    device.commits.PutBack(std::move(batch.removes.back()));
  }
  for (; !batch.adds.empty(); batch.adds.pop_back()) {
    device.commits.PutBack(std::move(batch.adds.back()));
  }
  device.commits.End();
  CHECK(device.commits.freeing_blocks() == 3);
  CHECK_FALSE(device.commits.MayBegin(kSomeTime));
  CHECK(device.commits.MayBegin(kSomeTime + IndexCommits::kRetry));
  const CommitBatch again = device.Begin();
  REQUIRE(again.removes.size() == 3);
  CHECK(again.removes[0].id == ChunkOf(1));
  CHECK(again.removes[2].id == ChunkOf(4));
  REQUIRE(again.adds.size() == 1);
  CHECK(again.adds[0].record.sequence == CommitSequence(2));
}

TEST_CASE("an index that refuses is waited for, until it has refused for too long in a row") {
  const absl::Status refused = absl::UnavailableError("it stalls");
  IndexCommits commits;
  CHECK_FALSE(commits.IsPutOff(absl::DataLossError("broken"), kSomeTime));
  CHECK(commits.IsPutOff(refused, kSomeTime));
  const MonotonicTime end = kSomeTime + IndexCommits::kRefusalPatience;
  CHECK(commits.IsPutOff(refused, end - std::chrono::nanoseconds(1)));
  CHECK_FALSE(commits.IsPutOff(refused, end));
  commits.NoteTaken();
  CHECK(commits.IsPutOff(refused, end));
  CHECK_FALSE(commits.IsPutOff(absl::OkStatus(), end));
  CHECK(commits.IsPutOff(refused, end + IndexCommits::kRefusalPatience));
  commits.WaitToRetry(end);
  commits.ForgetRefusals();
  commits.Add(AddOf(1));
  CHECK(commits.MayBegin(end));
}

TEST_CASE("blocks count as being freed until they are free, also of what an add overwrites") {
  Committing device;
  device.commits.Remove(RemoveOf(1, 3));
  device.commits.Add(AddOf(2));
  CommitBatch batch = device.Take();
  device.commits.RemoveWith(batch, RemoveOf(2, 4));
  CHECK_FALSE(batch.removes[0].with_add);  // that waited
  CHECK(batch.removes[1].with_add);
  CHECK(device.commits.freeing_blocks() == 7);
  device.commits.Begin(batch, [](const ChunkId&) { return false; }, device.recency);
  device.commits.NoteCommitted(batch);
  device.commits.EndFreeing(batch.removes[0].extents);
  device.commits.End();
  CHECK(device.commits.freeing_blocks() == 4);  // until the new record is stable
  CHECK(device.commits.settled());
  device.commits.EndFreeing(batch.removes[1].extents);
  CHECK(device.commits.freeing_blocks() == 0);
}

TEST_CASE("the index forgets a name once, and none that an add or another record has") {
  Committing device;
  device.recency.Begin(0, CommitSequence(5), CommitSequence(5), {});
  device.commits.Remove(RemoveOf(1, 1, 4));
  device.commits.Remove(RemoveOf(1, 2, 6));
  device.commits.Remove(RemoveOf(2, 1, 5));
  device.commits.Remove(RemoveOf(3));
  device.commits.Add(AddOf(3));
  const CommitBatch batch = device.Begin({ChunkOf(2)});
  CHECK(batch.forget == std::vector<ChunkId>{ChunkOf(1)});
  CHECK(batch.forgotten == std::vector<CommitSequence>{CommitSequence(4), CommitSequence(5)});
  const IndexBatch records = batch.Records();
  CHECK(records.removes == std::vector<ChunkId>{ChunkOf(1)});
  CHECK(records.freed.size() == 4);  // whatever the index keeps, these images go
  REQUIRE(records.adds.size() == 1);
  CHECK(records.adds[0].sequence == CommitSequence(1));
}

TEST_CASE("who waits for removals is told when the index has all of before, or will not") {
  Committing device;
  Hold hold(1000);
  std::vector<std::string> told;
  const auto wait = [&](const std::string& who) {
    device.commits.WaitForRemovals([&told, who](const absl::Status& status) {
      told.push_back(who + (status.ok() ? " ok" : " failed"));
    });
  };
  const auto answer = [&](const absl::Status& failed) {
    hold.Begin();
    device.commits.AnswerRemovals(failed, hold);
    RunTasks(hold);
  };
  device.commits.Remove(RemoveOf(1));
  wait("first");
  answer(absl::OkStatus());
  CHECK(told.empty());
  CommitBatch batch = device.Begin();
  CHECK(batch.last > device.commits.committed());  // to wait until it is stable
  device.commits.Remove(RemoveOf(2));
  wait("second");
  SECTION("one after the other") {
    device.commits.NoteCommitted(batch);
    device.commits.End();
    answer(absl::OkStatus());
    CHECK(told == std::vector<std::string>{"first ok"});
    device.Commit();
    answer(absl::OkStatus());
  }
  SECTION("a batch that failed is waited for again, with all behind it") {
    for (; !batch.removes.empty(); batch.removes.pop_back()) {
      device.commits.PutBack(std::move(batch.removes.back()));
    }
    device.commits.End();
    answer(absl::OkStatus());
    CHECK(told.empty());
    device.Commit();
    answer(absl::OkStatus());
  }
  CHECK(told == std::vector<std::string>{"first ok", "second ok"});
  wait("third");  // there is nothing to wait for
  answer(absl::DataLossError("broken"));
  device.commits.Remove(RemoveOf(3));
  wait("fourth");
  answer(absl::DataLossError("broken"));
  CHECK(told.back() == "fourth failed");
  CHECK(told[2] == "third ok");
}

TEST_CASE("what is given up is in no batch, and a device that is let go of frees nothing") {
  Committing device;
  device.commits.Add(AddOf(1));
  device.commits.Add(AddOf(2));
  CHECK(device.commits.TakeAdd().slot == ChunkSlot(1));
  device.Commit();
  device.commits.Remove(RemoveOf(3, 2));
  device.commits.Remove(RemoveOf(4, 2));
  CHECK(device.commits.TakeRemove().id == ChunkOf(3));
  CHECK(device.commits.freeing_blocks() == 4);  // the caller that took it says when they are free
  device.commits.Clear();
  CHECK(device.commits.freeing_blocks() == 0);
  CHECK_FALSE(device.commits.anyone_waits());
}

}  // namespace kvkeep::store_internal
