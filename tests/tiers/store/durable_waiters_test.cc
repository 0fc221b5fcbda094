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

}  // namespace kvkeep::store_internal
