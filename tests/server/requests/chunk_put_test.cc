// A chunk's put by itself: each way in which it can be answered.
#include "server/requests/chunk_put.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "tests/sim/world.h"

namespace kvkeep {
namespace {

WorldOptions SmallG2() {
  WorldOptions options;
  options.g2_blocks = options.g2_segment_blocks = 64;
  options.device_blocks = {512};
  return options;
}

struct Desk {
  explicit Desk(const WorldOptions& options = SmallG2()) : world(options) {
    world.Start();
    session = *world.store().OpenSession({.client_name = "desk"});
    ns = *world.store().OpenNamespace(session, {.model = "desk", .tokens_per_chunk = 16});
  }
  PutRequest Request(uint8_t name, uint32_t bytes = 100) const {
    PutRequest request{.ns = ns, .shape = {.payload_bytes = bytes}};
    request.key.bytes[0] = name;
    return request;
  }
  ChunkPut::Reserved Reserve(ChunkPut& put, const PutRequest& request) {
    const auto reserved = put.Reserve(world.store(), session, request);
    REQUIRE(reserved.ok());
    return *reserved;
  }
  // With space, and its payload in place.
  ChunkPut Filled(const PutRequest& request) {
    ChunkPut put;
    REQUIRE(Reserve(put, request) == ChunkPut::Reserved::kSpace);
    put.reservation().Append(std::vector<std::byte>(request.shape.payload_bytes));
    return put;
  }
  uint64_t reserved_bytes() { return world.store().snapshot().g2.reserved_bytes; }

  World world;
  SessionToken session;
  NamespaceDigest ns;
};

}  // namespace

TEST_CASE("a put is stored, and present when it is put again") {
  Desk desk;
  ChunkPut put = desk.Filled(desk.Request(1));
  CHECK(put.answer() == ChunkPut::Answer::kNone);
  REQUIRE(put.Seal({}).ok());
  CHECK(put.answer() == ChunkPut::Answer::kStored);
  CHECK_FALSE(put.awaits_durable());
  ChunkPut again;
  CHECK(desk.Reserve(again, desk.Request(1)) == ChunkPut::Reserved::kAnswered);
  CHECK(again.answer() == ChunkPut::Answer::kPresent);
  CHECK(again.id().key == desk.Request(1).key);
}

TEST_CASE("a payload with another checksum is rejected, and its space given back") {
  Desk desk;
  ChunkPut put = desk.Filled(desk.Request(1));
  CHECK(put.CheckPayload(7, 7));
  CHECK(desk.reserved_bytes() > 0);
  CHECK_FALSE(put.CheckPayload(1, 2));
  CHECK(put.reason() == RejectReason::kWrongChecksum);
  CHECK(put.message() ==
        "checksum: 0000000000000001; the payload that came has 0000000000000002");
  CHECK(desk.reserved_bytes() == 0);
}

TEST_CASE("a put without space in G2 is rejected when it asks for it") {
  Desk desk;
  ChunkPut put;
  CHECK(desk.Reserve(put, desk.Request(1, 1 << 20)) == ChunkPut::Reserved::kAnswered);
  CHECK(put.answer() == ChunkPut::Answer::kRejected);
  CHECK_FALSE(put.message().empty());
  CHECK_FALSE(static_cast<bool>(put.reservation()));
}

TEST_CASE("a put that finds the chunk table full at its end is rejected, and ends nothing else") {
  WorldOptions options = SmallG2();
  options.device_blocks = {};
  options.store.max_chunks = 1;
  Desk desk(options);
  ChunkPut first = desk.Filled(desk.Request(1)), second = desk.Filled(desk.Request(2));
  REQUIRE(first.Seal({}).ok());
  // It is being read, so it cannot go.
  auto read = desk.world.store().Read(desk.session, first.id(), LeaseId(0), false);
  REQUIRE(read->outcome == ReadOutcome::kHit);
  CHECK(second.Seal({}).ok());
  CHECK(second.answer() == ChunkPut::Answer::kRejected);
  CHECK(second.reason() == RejectReason::kLimit);
  CHECK(desk.reserved_bytes() == 0);
}

TEST_CASE("an ended session is an error of the call, not an answer of the chunk") {
  Desk desk;
  ChunkPut put = desk.Filled(desk.Request(1)), later;
  desk.world.store().CloseSession(desk.session);
  CHECK(absl::IsFailedPrecondition(put.Seal({})));
  CHECK(put.answer() == ChunkPut::Answer::kNone);
  CHECK_FALSE(later.Reserve(desk.world.store(), desk.session, desk.Request(2)).ok());
}

TEST_CASE("a durable put holds once it is on stable storage, and is rejected when it is not") {
  Desk desk;
  PutRequest request = desk.Request(1);
  request.durable = true;
  ChunkPut put = desk.Filled(request);
  REQUIRE(put.Seal({}).ok());
  CHECK(put.awaits_durable());
  put.OnDurable(absl::OkStatus());
  CHECK(put.answer() == ChunkPut::Answer::kStored);
  put.OnDurable(absl::UnavailableError("no device"));
  CHECK(put.answer() == ChunkPut::Answer::kRejected);
  CHECK(put.reason() == RejectReason::kNotDurable);
  CHECK(put.message() == "durable: in G2, but not on stable storage: no device");
  CHECK_FALSE(put.awaits_durable());
}

}  // namespace kvkeep
