#include "tiers/store/write_backs.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

using std::chrono::seconds;

}  // namespace

TEST_CASE("the oldest of what is dirty is the one whose write was queued first") {
  WriteBacks writes;
  CHECK(writes.OldestAge(seconds(100)) == seconds(0));
  writes.Begin(Generation(1), seconds(10));
  writes.Begin(Generation(2), seconds(20));
  CHECK(writes.dirty() == 2);
  CHECK(writes.OldestAge(seconds(100)) == seconds(90));
  writes.End(Generation(1));
  CHECK(writes.OldestAge(seconds(100)) == seconds(80));
  writes.End(Generation(2));
  CHECK(writes.dirty() == 0);
}

TEST_CASE("a write has ended when all of its bytes have, and tells its first failure") {
  WriteBacks writes;
  WriteBack* const begun = writes.BeginWrite(ChunkSlot(1), 12);
  CHECK(begun->bytes_left() == 12);
  for (uint32_t slot = 2; slot < 100; ++slot) {
    CHECK(writes.BeginWrite(ChunkSlot(slot), 1) != begun);
  }
  CHECK(writes.writing() == 99);
  CHECK(writes.EndBytes(ChunkSlot(1), 4, absl::OkStatus()).write == nullptr);
  CHECK(writes.EndBytes(ChunkSlot(1), 4, absl::DataLossError("first")).write == nullptr);
  const auto ended = writes.EndBytes(ChunkSlot(1), 4, absl::UnavailableError("second"));
  REQUIRE(ended.write.get() == begun);  // others that began did not move it
  CHECK(absl::IsDataLoss(ended.write->failure));
  CHECK(ended.write->bytes == 12);
  CHECK(writes.writing() == 98);
  writes.BeginWrite(ChunkSlot(1), 1);  // the slot may be written again
  CHECK(writes.EndBytes(ChunkSlot(1), 1, absl::OkStatus()).write->failure.ok());
}

TEST_CASE("bytes that end without the lock are told with the next ones, and never are the last") {
  WriteBacks writes;
  WriteBack* const begun = writes.BeginWrite(ChunkSlot(1), 12);
  CHECK(begun->EndSome(3));
  CHECK(writes.EndBytes(ChunkSlot(1), 2, absl::OkStatus()).bytes == 5);
  CHECK(begun->EndSome(1));
  CHECK(begun->EndSome(2));
  CHECK_FALSE(begun->EndSome(4));
  CHECK(begun->bytes_left() == 4);
  const auto ended = writes.EndBytes(ChunkSlot(1), 4, absl::OkStatus());
  CHECK(ended.bytes == 7);
  CHECK(ended.write != nullptr);
}

TEST_CASE("what no device took is offered again after a while") {
  WriteBacks writes;
  CHECK(writes.MayOffer(seconds(0)));
  writes.NoteNotTaken(seconds(10));
  CHECK_FALSE(writes.MayOffer(seconds(10)));
  CHECK(writes.MayOffer(seconds(10) + WriteBacks::kOfferAgain));
}

}  // namespace kvkeep::store_internal
