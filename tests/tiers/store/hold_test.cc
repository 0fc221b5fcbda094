#include "tiers/store/hold.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/tiers/store/run_tasks.h"

namespace kvkeep::store_internal {

TEST_CASE("a hold is spent when it has done its work, and begins anew") {
  Hold hold(10);
  hold.Count(9);
  CHECK_FALSE(hold.Spent());
  hold.Count(5);
  CHECK(hold.Spent());
  hold.Begin();
  CHECK_FALSE(hold.Spent());
}

TEST_CASE("what a hold leaves to do is taken once, in order, and may leave more") {
  Hold hold(1);
  CHECK_FALSE(hold.TakeTasks().has_value());
  std::string done;
  hold.Later([&] {
    done += "1";
    hold.Later([&] { done += "3"; });
  });
  hold.CallLater([&](const absl::Status& status) { done += status.ok() ? "ok" : "2"; },
                 absl::UnavailableError(""));
  while (RunTasks(hold)) {
  }
  CHECK(done == "123");
  CHECK_FALSE(hold.has_tasks());
}

TEST_CASE("a hold may leave any number of tasks, and they run in their order") {
  Hold hold(1);
  std::string done;
  for (char task = 'a'; task <= 'l'; ++task) hold.Later([&done, task] { done += task; });
  CHECK(RunTasks(hold));
  CHECK(done == "abcdefghijkl");
  CHECK_FALSE(hold.has_tasks());
  hold.Later([&done] { done = "anew"; });
  CHECK(RunTasks(hold));
  CHECK(done == "anew");
}

}  // namespace kvkeep::store_internal
