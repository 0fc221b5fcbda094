#include "tiers/store/durable_waiters.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/tiers/store/run_tasks.h"

namespace kvkeep::store_internal {
namespace {

struct Told {
  StatusCallback Waiter(char name) {
    return [this, name](const absl::Status& status) {
      names += name;
      last = status;
    };
  }
  std::string names;
  absl::Status last;
};

// A device's waiters, and what a hold of so much work answers.
struct Syncs : Told {
  explicit Syncs(uint64_t max_work = 600) : hold(max_work) {}
  void Add(uint64_t sequence, char name) {
    waiters.Add(CommitSequence(sequence), Waiter(name));
  }
  // Whether all were answered that could be, and they are told.
  bool Answer(uint64_t stable, const absl::Status& failed_sync = absl::OkStatus()) {
    hold.Begin();
    const bool all = waiters.Answer(CommitSequence(stable), failed_sync, hold);
    RunTasks(hold);
    return all;
  }
  Hold hold;
  SyncWaiters waiters;
};

}  // namespace

TEST_CASE("all who wait for a chunk are told after the hold, in order, why it will not be stored") {
  Hold hold(600);
  Told told;
  DurableWaiters waiters(&hold);
  waiters.Add(ChunkSlot(1), told.Waiter('a'));
  waiters.Add(ChunkSlot(1), told.Waiter('b'));
  waiters.Add(ChunkSlot(2), told.Waiter('c'));
  waiters.Fail(ChunkSlot(1), absl::NotFoundError("gone"));
  waiters.Fail(ChunkSlot(3), absl::NotFoundError("nobody waits"));
  CHECK(told.names.empty());
  RunTasks(hold);
  CHECK(told.names == "ab");
  CHECK(absl::IsNotFound(told.last));
  CHECK_FALSE(waiters.Has(ChunkSlot(1)));
  REQUIRE(waiters.Has(ChunkSlot(2)));
  std::move(waiters.Take(ChunkSlot(2)))(absl::OkStatus());
  CHECK(told.names == "abc");
  CHECK_FALSE(waiters.Has(ChunkSlot(2)));
}

TEST_CASE("who waits for a sync is answered when the sequence is stable, not before") {
  Syncs syncs;
  syncs.Add(20, 'b');
  syncs.Add(10, 'a');
  CHECK(syncs.Answer(19));
  CHECK(syncs.names == "a");
  CHECK(syncs.Answer(20));
  CHECK(syncs.names == "ab");
  CHECK(syncs.last.ok());
  CHECK(syncs.waiters.empty());
}

TEST_CASE("a sync that failed fails all but those whose sequence was stable before") {
  const absl::Status failed = absl::UnavailableError("failed");
  Syncs syncs;
  syncs.Add(10, 'a');
  CHECK(syncs.Answer(10, failed));
  CHECK(syncs.last.ok());
  syncs.Add(11, 'b');
  CHECK(syncs.Answer(10, failed));
  CHECK(syncs.names == "ab");
  CHECK(absl::IsUnavailable(syncs.last));
}

TEST_CASE("a hold answers no more than it may, and the next one goes on") {
  Syncs syncs(work::kCall);
  syncs.Add(1, 'a');
  syncs.Add(1, 'b');
  CHECK_FALSE(syncs.Answer(1));
  CHECK(syncs.names == "a");
  CHECK(syncs.Answer(1));
  CHECK(syncs.names == "ab");
}

}  // namespace kvkeep::store_internal
