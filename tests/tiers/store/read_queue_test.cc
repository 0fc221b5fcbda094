// The order of reads.
#include "tiers/store/read_queue.h"

#include <catch2/catch.hpp>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kTurn = FairQueue<TenantId, std::deque<int>>::kTurnBytes;

ReadQueue::Requester Requester(uint32_t tenant, uint8_t session) {
  ReadQueue::Requester requester{.tenant = TenantId(tenant), .session = {}};
  requester.session.bytes[0] = session;
  return requester;
}

void PushMany(ReadQueue& queue, const ReadQueue::Requester& requester, uint32_t slot, int count,
              uint64_t bytes) {
  for (int i = 0; i < count; ++i) queue.Push(requester, ChunkSlot(slot), bytes);
}

// Returns the next `count`, a digit each.
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
  for (uint32_t slot = 0; slot < 9; ++slot) queue.Push(Requester(0, 1), ChunkSlot(slot), 3 * kMiB);
  CHECK(queue.bytes() == 27 * kMiB);
  CHECK(Next(queue, 9) == "012345678");
  CHECK(queue.empty());
  CHECK(queue.bytes() == 0);
}

TEST_CASE("sessions take turns, however much one of them asked for before the others came") {
  ReadQueue queue;
  PushMany(queue, Requester(0, 1), 1, 100, kTurn / 4);
  CHECK(Next(queue, 2) == "11");
  PushMany(queue, Requester(0, 2), 2, 6, kTurn / 4);
  PushMany(queue, Requester(0, 3), 3, 1, kTurn / 4);
  CHECK(Next(queue, 17) == "11222231111221111");
}

TEST_CASE("tenants take turns, however many sessions they have") {
  ReadQueue queue;
  for (uint8_t session = 0; session < 8; ++session) {
    PushMany(queue, Requester(0, session), session, 2, kTurn);
  }
  PushMany(queue, Requester(1, 0), 9, 3, kTurn);
  CHECK(Next(queue, 19) == "0919293456701234567");
}

TEST_CASE("who took more than a turn with one chunk sits out until the others have had as much") {
  ReadQueue queue;
  PushMany(queue, Requester(0, 1), 1, 3, 4 * kTurn);
  PushMany(queue, Requester(0, 2), 2, 12, kTurn);
  CHECK(Next(queue, 15) == "122221222212222");
}

TEST_CASE("who asks for one large chunk at a time gets no more than who asks for many small ones") {
  ReadQueue queue;
  PushMany(queue, Requester(0, 2), 2, 1000, kTurn / 8);
  uint64_t of_first = 0, of_second = 0;
  bool waits = false;
  while (of_second < 100 * kTurn) {
    if (!waits) queue.Push(Requester(0, 1), ChunkSlot(1), 8 * kTurn);
    waits = queue.front() != ChunkSlot(1);
    waits ? of_second += kTurn / 8 : of_first += 8 * kTurn;
    queue.Pop();
  }
  CHECK(of_first <= 108 * kTurn);
  CHECK(of_first >= 92 * kTurn);
}

TEST_CASE("who comes back sits out what it had more than the others, and no more than that") {
  ReadQueue queue;
  queue.Push(Requester(0, 1), ChunkSlot(1), 2 * kTurn);
  PushMany(queue, Requester(0, 2), 2, 10, kTurn);
  CHECK(Next(queue, 1) == "1");
  queue.Push(Requester(0, 1), ChunkSlot(1), kTurn);
  CHECK(Next(queue, 8) == "22122222");
  PushMany(queue, Requester(0, 1), 1, 2, kTurn);  // long after the others have caught up
  CHECK(Next(queue, 5) == "21212");
  queue.Push(Requester(0, 1), ChunkSlot(1), 2 * kTurn);
  CHECK(Next(queue, 1) == "1");
  queue.Push(Requester(0, 1), ChunkSlot(1), kTurn);  // nobody waited
  PushMany(queue, Requester(0, 2), 2, 2, kTurn);
  CHECK(Next(queue, 3) == "122");
}

TEST_CASE("what may come before a reader's last byte is as many turns of everybody else") {
  ReadQueue queue;
  CHECK(queue.BytesBefore(Requester(0, 1), 100) == 0);
  queue.Push(Requester(0, 1), ChunkSlot(0), 1000);
  queue.Push(Requester(0, 2), ChunkSlot(0), 30);
  queue.Push(Requester(1, 1), ChunkSlot(0), 5 * kTurn);
  CHECK(queue.BytesBefore(Requester(0, 1), 100) == 1000 + 30 + kTurn);
  CHECK(queue.BytesBefore(Requester(0, 1), kTurn) == 1000 + 30 + 2 * kTurn);
  CHECK(queue.BytesBefore(Requester(0, 3), 100) == 1000 + 30 + kTurn);
  CHECK(queue.BytesBefore(Requester(2, 9), 100) == 1030 + kTurn);
  CHECK(queue.BytesBefore(Requester(2, 9), 100 * kTurn) == queue.bytes());
}

TEST_CASE("of many thousands that wait, what comes before is counted, at worst as all of it") {
  constexpr uint16_t kSessions = 5000;
  ReadQueue queue;
  for (uint16_t session = 0; session < kSessions; ++session) {
    ReadQueue::Requester requester{.tenant = TenantId(0), .session = {}};
    requester.session.bytes[0] = static_cast<uint8_t>(session);
    requester.session.bytes[1] = static_cast<uint8_t>(session >> 8);
    PushMany(queue, requester, 0, 2, kTurn);
  }
  const uint64_t before = queue.BytesBefore(Requester(0, 0), 1);
  CHECK(before <= queue.bytes());
  CHECK(before >= (kSessions + 1) * kTurn);
  ReadQueue::Requester last{.tenant = TenantId(0), .session = {}};
  last.session.bytes[0] = static_cast<uint8_t>(kSessions - 1);
  last.session.bytes[1] = static_cast<uint8_t>((kSessions - 1) >> 8);
  CHECK(queue.BytesBefore(last, 1) == queue.bytes());  // whose own bytes are counted once, too
  while (!queue.empty()) queue.Pop();
  CHECK(queue.bytes() == 0);
}

}  // namespace kvkeep::store_internal
