// Whose read is next.
#include "tiers/store/read_queue.h"

#include <catch2/catch.hpp>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kTurn = ReadQueue::kTurnBytes;

ReadQueue::Asker Asker(uint32_t tenant, uint8_t session) {
  ReadQueue::Asker asker{.tenant = TenantId(tenant), .session = {}};
  asker.session.bytes[0] = session;
  return asker;
}

void PushMany(ReadQueue& queue, const ReadQueue::Asker& asker, uint32_t slot, int count,
              uint64_t bytes) {
  for (int i = 0; i < count; ++i) queue.Push(asker, ChunkSlot(slot), bytes);
}

// The next `count`, a digit each.
std::string Next(ReadQueue& queue, int count) {
  std::string slots;
  for (int i = 0; i < count; ++i) {
    slots += std::to_string(queue.front().value());
    queue.Pop();
  }
  return slots;
}

}  // namespace

TEST_CASE("what one session waits for comes in the order in which it was asked for") {
  ReadQueue queue;
  CHECK(queue.empty());
  for (uint32_t slot = 0; slot < 9; ++slot) queue.Push(Asker(0, 1), ChunkSlot(slot), 3 * kMiB);
  CHECK(queue.bytes() == 27 * kMiB);
  CHECK(Next(queue, 9) == "012345678");
  CHECK(queue.empty());
  CHECK(queue.bytes() == 0);
}

TEST_CASE("sessions take turns, however much one of them asked for before the others came") {
  ReadQueue queue;
  PushMany(queue, Asker(0, 1), 1, 100, kTurn / 4);
  CHECK(Next(queue, 2) == "11");
  PushMany(queue, Asker(0, 2), 2, 6, kTurn / 4);
  PushMany(queue, Asker(0, 3), 3, 1, kTurn / 4);
  CHECK(Next(queue, 17) == "11222231111221111");
}

TEST_CASE("tenants take turns, however many sessions they have") {
  ReadQueue queue;
  for (uint8_t session = 0; session < 8; ++session) {
    PushMany(queue, Asker(0, session), session, 2, kTurn);
  }
  PushMany(queue, Asker(1, 0), 9, 3, kTurn);
  CHECK(Next(queue, 19) == "0919293456701234567");
}

TEST_CASE("who took more than a turn with one chunk sits out until the others have had as much") {
  ReadQueue queue;
  PushMany(queue, Asker(0, 1), 1, 3, 4 * kTurn);
  PushMany(queue, Asker(0, 2), 2, 12, kTurn);
  CHECK(Next(queue, 15) == "122221222212222");
}

TEST_CASE("what comes before a reader's last byte is as much of everybody else at most") {
  ReadQueue queue;
  CHECK(queue.BytesBefore(Asker(0, 1), 100) == 0);
  queue.Push(Asker(0, 1), ChunkSlot(0), 1000);
  queue.Push(Asker(0, 2), ChunkSlot(0), 30);
  queue.Push(Asker(1, 1), ChunkSlot(0), 5000);
  CHECK(queue.BytesBefore(Asker(0, 1), 100) == 1000 + 30 + (1000 + 100 + 30));
  CHECK(queue.BytesBefore(Asker(0, 3), 100) == 100 + 30 + (100 + 100 + 30));
  CHECK(queue.BytesBefore(Asker(2, 9), 100) == 100 + 100);
  CHECK(queue.BytesBefore(Asker(2, 9), 1'000'000) == queue.bytes());
}

}  // namespace kvkeep::store_internal
