#include "tiers/store/dirty_chunks.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace kvkeep::store_internal {

TEST_CASE("the oldest of what is dirty is the one whose write was queued first") {
  using std::chrono::seconds;
  DirtyChunks dirty;
  CHECK(dirty.OldestAge(seconds(100)) == seconds(0));
  dirty.Begin(Generation(1), seconds(10));
  dirty.Begin(Generation(2), seconds(20));
  CHECK(dirty.count() == 2);
  CHECK(dirty.OldestAge(seconds(100)) == seconds(90));
  dirty.End(Generation(1));
  CHECK(dirty.OldestAge(seconds(100)) == seconds(80));
  dirty.End(Generation(2));
  CHECK(dirty.count() == 0);
}

}  // namespace kvkeep::store_internal
