#include "tiers/store/unbacked_queue.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

TEST_CASE("who waits unbacked longest is first, and is told near which chunk it was to be") {
  ChunkTable table(std::make_shared<SlotArrays>(100), 7);
  UnbackedQueue queue;
  std::vector<ChunkSlot> slots;
  for (uint64_t i = 0; i < 4; ++i) {
    ChunkId id;
    id.key.bytes[0] = static_cast<uint8_t>(i);
    slots.push_back(table.Create(id, {.payload_bytes = 4096}));
  }
  CHECK(queue.first() == kNoSlot);
  for (size_t i : {2, 0, 3}) queue.Push(table, slots[i], slots[1]);
  CHECK(queue.chunks() == 3);
  CHECK(queue.blocks() == 3 * table.at(slots[0]).blocks());
  CHECK(queue.Has(slots[0]));
  CHECK_FALSE(queue.Has(slots[1]));
  CHECK(table.at(slots[2]).waits_unbacked);

  CHECK(queue.first() == slots[2]);
  CHECK(queue.Remove(table, slots[0]) == slots[1]);
  CHECK(queue.Remove(table, slots[2]) == slots[1]);
  CHECK_FALSE(table.at(slots[2]).waits_unbacked);
  queue.Push(table, slots[2], kNoSlot);
  CHECK(queue.first() == slots[3]);
  CHECK(queue.Remove(table, slots[3]) == slots[1]);
  CHECK(queue.Remove(table, slots[2]) == kNoSlot);
  CHECK(queue.first() == kNoSlot);
  CHECK(queue.chunks() == 0);
  CHECK(queue.blocks() == 0);
}

}  // namespace
}  // namespace kvkeep::store_internal
