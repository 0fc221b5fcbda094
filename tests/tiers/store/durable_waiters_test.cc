#include "tiers/store/durable_waiters.h"

#include <catch2/catch.hpp>
#include <string>

namespace kvkeep::store_internal {
namespace {

struct Told {
  StatusCallback Waiter(char name) {
    return [this, name](const absl::Status& status) {
      names += name;
      last = status;
    };
  }
  void RunTasks(Hold& hold) {
    std::optional<Hold::Tasks> tasks = hold.TakeTasks();
    if (!tasks.has_value()) return;
    for (Hold::Task& task : *tasks) std::move(task)();
  }
  std::string names;
  absl::Status last;
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
  told.RunTasks(hold);
  CHECK(told.names == "ab");
  CHECK(absl::IsNotFound(told.last));
  CHECK_FALSE(waiters.Has(ChunkSlot(1)));
  REQUIRE(waiters.Has(ChunkSlot(2)));
  std::move(waiters.Take(ChunkSlot(2)))(absl::OkStatus());
  CHECK(told.names == "abc");
  CHECK_FALSE(waiters.Has(ChunkSlot(2)));
}

TEST_CASE("who waits for a sync is answered when the sequence is stable, not before") {
  Hold hold(600);
  Told told;
  SyncWaiters waiters;
  waiters.Add(CommitSequence(20), told.Waiter('b'));
  waiters.Add(CommitSequence(10), told.Waiter('a'));
  CHECK(waiters.Answer(CommitSequence(19), absl::OkStatus(), hold));
  told.RunTasks(hold);
  CHECK(told.names == "a");
  CHECK(waiters.Answer(CommitSequence(20), absl::OkStatus(), hold));
  told.RunTasks(hold);
  CHECK(told.names == "ab");
  CHECK(told.last.ok());
  CHECK(waiters.empty());
}

TEST_CASE("a sync that failed fails all but those whose sequence was stable before") {
  Hold hold(600);
  Told told;
  SyncWaiters waiters;
  waiters.Add(CommitSequence(10), told.Waiter('a'));
  CHECK(waiters.Answer(CommitSequence(10), absl::UnavailableError("failed"), hold));
  told.RunTasks(hold);
  CHECK(told.last.ok());
  waiters.Add(CommitSequence(11), told.Waiter('b'));
  CHECK(waiters.Answer(CommitSequence(10), absl::UnavailableError("failed"), hold));
  told.RunTasks(hold);
  CHECK(told.names == "ab");
  CHECK(absl::IsUnavailable(told.last));
}

TEST_CASE("a hold answers no more than it may, and the next one goes on") {
  Hold hold(work::kCall);
  Told told;
  SyncWaiters waiters;
  waiters.Add(CommitSequence(1), told.Waiter('a'));
  waiters.Add(CommitSequence(1), told.Waiter('b'));
  CHECK_FALSE(waiters.Answer(CommitSequence(1), absl::OkStatus(), hold));
  told.RunTasks(hold);
  CHECK(told.names == "a");
  hold.Begin();
  CHECK(waiters.Answer(CommitSequence(1), absl::OkStatus(), hold));
  told.RunTasks(hold);
  CHECK(told.names == "ab");
}

}  // namespace kvkeep::store_internal
