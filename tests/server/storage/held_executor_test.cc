#include "server/storage/held_executor.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_executor.h"

namespace kvkeep {

TEST_CASE("tasks are kept until they are let go, and go in the order posted") {
  ManualExecutor pool;
  HeldExecutor held(&pool);
  std::string ran;
  held.Post([&] { ran += '1'; });
  held.Post([&] { ran += '2'; });
  CHECK(pool.idle());
  held.LetGo();
  held.Post([&] { ran += '3'; });
  CHECK(pool.RunAll() == 3);
  CHECK(ran == "123");
  held.LetGo();
  CHECK(pool.idle());
}

}  // namespace kvkeep
