#include "tiers/store/write_lane.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

void PushTo(WriteLane& lane, uint32_t slot, uint64_t generation, uint64_t blocks = 1) {
  lane.Push(Generation(generation), {ChunkSlot(slot), std::nullopt}, blocks);
}

}  // namespace

TEST_CASE("writes wait in the order of their generations, whoever came first") {
  WriteLane lane;
  PushTo(lane, 1, 20);
  PushTo(lane, 2, 10);  // it was queued for another device before
  PushTo(lane, 3, 30);
  CHECK(lane.waiting() == 3);
  CHECK(lane.waited_for());
  CHECK(lane.next().first == Generation(10));
  CHECK(lane.next().second.slot == ChunkSlot(2));
  lane.Remove(Generation(10));
  lane.Remove(Generation(30));  // deleted, from the middle of the queue
  CHECK(lane.next().second.slot == ChunkSlot(1));
  lane.Remove(Generation(20));
  CHECK_FALSE(lane.anyone_waits());
  CHECK_FALSE(lane.waited_for());
}

TEST_CASE("a write begins while there is room among the bytes in flight, one at any time") {
  WriteLane lane;
  PushTo(lane, 1, 1);
  PushTo(lane, 2, 2);
  CHECK_FALSE(lane.busy());
  CHECK(lane.MayBegin(1000, 100));
  lane.Begin(Generation(1), 60);
  CHECK(lane.busy());
  CHECK(lane.waiting() == 1);
  CHECK(lane.MayBegin(40, 100));
  CHECK_FALSE(lane.MayBegin(41, 100));
  lane.End(30);  // piece by piece
  CHECK(lane.MayBegin(70, 100));
  lane.End(30);
  CHECK_FALSE(lane.busy());
}

TEST_CASE("a lane knows what it was given, whatever became of that") {
  WriteLane lane;
  PushTo(lane, 1, 1, 5);
  PushTo(lane, 2, 2, 6);
  lane.Begin(Generation(1), 4096);
  lane.Remove(Generation(2));
  CHECK(lane.given_blocks() == 11);
  lane.SetGiven(4);
  PushTo(lane, 3, 3, 2);
  CHECK(lane.given_blocks() == 6);
}

}  // namespace kvkeep::store_internal
