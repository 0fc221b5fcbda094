// Reads from a lower tier: in turns, within the bytes in flight, and the estimate of their time.
#include "tiers/store/read_lane.h"

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr MonotonicTime kStart = std::chrono::seconds(1);
constexpr MonotonicTime kSecond = std::chrono::seconds(1);

ReadQueue::Requester Requester(uint8_t session) {
  ReadQueue::Requester requester{.tenant = TenantId(0), .session = {}};
  requester.session.bytes[0] = session;
  return requester;
}

}  // namespace

TEST_CASE("a lower tier has as many bytes in flight as it may, or one image") {
  ReadLane lane(8 * kMiB);
  CHECK_FALSE(lane.anyone_waits());
  lane.Ask(Requester(1), ChunkSlot(7), 10 * kMiB, kStart);
  lane.Ask(Requester(1), ChunkSlot(8), 4 * kMiB, kStart);
  lane.Ask(Requester(1), ChunkSlot(9), 4 * kMiB, kStart);
  CHECK(lane.next() == ChunkSlot(7));
  CHECK(lane.MayBegin(10 * kMiB));  // however large, as nothing else is under way
  CHECK_FALSE(lane.busy());
  lane.Begin(10 * kMiB);
  CHECK(lane.busy());
  CHECK(lane.next() == ChunkSlot(8));
  CHECK_FALSE(lane.MayBegin(4 * kMiB));
  lane.End(10 * kMiB, true, kStart + kSecond);
  CHECK_FALSE(lane.busy());
  lane.Begin(4 * kMiB);
  CHECK(lane.MayBegin(4 * kMiB));
  CHECK_FALSE(lane.MayBegin(4 * kMiB + 1));
  lane.Begin(4 * kMiB);
  CHECK_FALSE(lane.anyone_waits());
}

TEST_CASE("a read that is not measured changes nothing of what reads are said to take") {
  ReadLane lane(kGiB);
  const auto guess = lane.TimeFor(Requester(2), kMiB, true, kStart);
  lane.Ask(Requester(1), ChunkSlot(1), kGiB, kStart, /*measured=*/false);
  CHECK(lane.TimeFor(Requester(2), kMiB, true, kStart) == guess);
  lane.Begin(kGiB);
  lane.End(kGiB, false, kStart + 60 * kSecond, /*measured=*/false);
  CHECK(lane.TimeFor(Requester(2), kMiB, true, kStart + 60 * kSecond) == guess);
}

TEST_CASE("what others wait for is before one's own only as far as turns have it") {
  ReadLane lane(kGiB);
  // 1 GiB/s, by the measured time.
  lane.Ask(Requester(1), ChunkSlot(1), kGiB, kStart);
  lane.Begin(kGiB);
  lane.End(kGiB, true, kStart + kSecond);
  for (uint32_t slot = 2; slot < 34; ++slot) {
    lane.Ask(Requester(1), ChunkSlot(slot), 64 * kMiB, kStart + kSecond);
  }
  const auto behind_all = lane.TimeFor(Requester(2), 64 * kMiB, true, kStart + kSecond);
  const auto in_turn = lane.TimeFor(Requester(2), 64 * kMiB, false, kStart + kSecond);
  CHECK(behind_all > std::chrono::milliseconds(2000));
  CHECK(behind_all < std::chrono::milliseconds(2200));
  CHECK(in_turn < behind_all / 4);
  CHECK(lane.TimeFor(Requester(1), 64 * kMiB, false, kStart + kSecond) == behind_all);
}

}  // namespace kvkeep::store_internal
