#include "tiers/store/confirm_queue.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("headers are read in turn, so many at once") {
  ConfirmQueue queue;
  for (uint32_t i = 0; i < ConfirmQueue::kMostAtOnce + 1; ++i) queue.Add(ChunkSlot(i));
  for (uint32_t i = 0; i < ConfirmQueue::kMostAtOnce; ++i) {
    CHECK(queue.Next()->slot == ChunkSlot(i));
    queue.Begin();
  }
  CHECK_FALSE(queue.may_begin());
  CHECK_FALSE(queue.Next().has_value());
  queue.End();
  CHECK(queue.Next()->slot == ChunkSlot(ConfirmQueue::kMostAtOnce));
  CHECK_FALSE(queue.empty());
  while (queue.reading() > 0) queue.End();
  CHECK(queue.empty());
}

TEST_CASE("one that could not be read comes again, behind the others, so many times") {
  ConfirmQueue queue;
  ConfirmQueue::Entry entry{ChunkSlot(7)};
  for (uint32_t tries = 1; tries < ConfirmQueue::kMostTries; ++tries) {
    REQUIRE(ConfirmQueue::TryAgain(entry));
    queue.AddAgain(entry, seconds(10 * tries));
    CHECK_FALSE(queue.empty());
    queue.TakeDue(seconds(10 * tries) + ConfirmQueue::kAgain - milliseconds(1));
    CHECK_FALSE(queue.may_begin());
    queue.Add(ChunkSlot(8));
    queue.TakeDue(seconds(10 * tries) + ConfirmQueue::kAgain);
    CHECK(queue.Next()->slot == ChunkSlot(8));
    entry = *queue.Next();
    CHECK(entry.slot == ChunkSlot(7));
    CHECK(entry.failures == tries);
  }
  CHECK_FALSE(ConfirmQueue::TryAgain(entry));
  queue.Add(ChunkSlot(1));
  queue.Clear();
  CHECK(queue.empty());
}

}  // namespace kvkeep::store_internal
