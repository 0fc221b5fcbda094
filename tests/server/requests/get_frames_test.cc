// A get by itself: which frames it gives, when, and what it holds meanwhile.
#include "server/requests/get_frames.h"

#include <catch2/catch.hpp>

#include "tests/sim/world.h"

namespace kvkeep {
namespace {

constexpr uint32_t kLarge = 3 * kPieceBytes + 100;

WorldOptions SomeChunks() {
  WorldOptions options;
  options.g2_blocks = 8192;
  options.g2_segment_blocks = 4096;
  options.store.max_reserved_bytes = 8192 * kBlockBytes;
  options.device_blocks = {8192};
  return options;
}

struct Reader {
  explicit Reader(uint64_t pin_limit = UINT64_MAX)
      : world(SomeChunks()), pins({.tenant_bytes = {pin_limit}}) {
    world.Start();
    Connect();
  }
  void Connect() {
    session = *world.store().OpenSession({.client_name = "reader"});
    ns = *world.store().OpenNamespace(session, {.model = "reader", .tokens_per_chunk = 16});
  }
  static ChunkKey Key(uint8_t name) {
    ChunkKey key{};
    key.bytes[0] = name;
    return key;
  }
  static std::byte At(uint8_t name, uint64_t offset) {
    return std::byte(name + offset / kPieceBytes + offset % 251);
  }
  void Put(uint8_t name, uint32_t bytes, const std::string& metadata = "") {
    const PutRequest request{
        .ns = ns,
        .key = Key(name),
        .shape = {.payload_bytes = bytes, .tail_bytes = static_cast<uint32_t>(metadata.size())}};
    auto reserved = world.store().Reserve(session, request);
    REQUIRE(reserved.ok());
    REQUIRE(static_cast<bool>(reserved->reservation));
    std::vector<std::byte> payload(bytes);
    for (uint64_t i = 0; i < bytes; ++i) payload[i] = At(name, i);
    reserved->reservation.Append(payload);
    REQUIRE(reserved->reservation.Seal(std::as_bytes(std::span(metadata))).ok());
  }
  // Writes all chunks to NVMe and starts anew, so that nothing is resident.
  void Restart() {
    world.Settle();
    world.Kill();
    world.LoseArena();
    world.Start();
    world.Settle();
    Connect();
  }
  std::shared_ptr<GetFrames> Begin(const std::vector<uint8_t>& names, GetPlan plan = {},
                                   size_t frame_pieces = GetFrames::kFramePieces) {
    plan.session = session;
    plan.chunks = {.ns = ns, .parts = {PartId(0)}};
    for (const uint8_t name : names) plan.chunks.keys.push_back(Key(name));
    return GetFrames::Begin({&world.store(), &pins, &counters, frame_pieces}, plan,
                            [this] { ++wakes; });
  }
  uint64_t pinned() const { return counters.pinned_chunks; }

  World world;
  PinBudget pins;
  ServerCounters counters;
  SessionToken session;
  NamespaceDigest ns;
  int wakes = 0;
};

void CheckPayload(const GetFrames::Frame& frame, uint8_t name) {
  REQUIRE(frame.pin != nullptr);
  const GetFrameHeader& header = frame.header;
  for (uint64_t at = 0; at < header.frame_payload_bytes;) {
    const auto run = frame.pin->reader.Payload(header.offset + at, header.frame_payload_bytes - at);
    REQUIRE_FALSE(run.empty());
    bool right = true;
    for (size_t i = 0; i < run.size(); ++i) {
      right &= run[i] == Reader::At(name, header.offset + at + i);
    }
    CHECK(right);
    at += run.size();
  }
}

}  // namespace

TEST_CASE("resident chunks are given at once, frame by frame, in the order asked for") {
  Reader reader;
  reader.Put(1, kLarge, "tail");
  reader.Put(3, 500);
  const auto get = reader.Begin({1, 2, 3}, {.metadata = true});
  CHECK(reader.pinned() == 0);  // not before the first call
  auto first = get->Next();
  REQUIRE(first.has_value());
  CHECK(first->header.status == v1::CHUNK_STATUS_HIT);
  CHECK(first->header.frame_payload_bytes == 2 * kPieceBytes);
  CHECK(first->header.chunk_payload_bytes == kLarge);
  CHECK(first->header.piece_checksums.size() == 2);
  CHECK_FALSE(first->header.last);
  CHECK(first->header.metadata.empty());
  CheckPayload(*first, 1);
  get->Prepare();
  const auto second = get->Next();
  REQUIRE(second.has_value());
  CHECK(second->header.offset == 2 * kPieceBytes);
  CHECK(second->header.frame_payload_bytes == kPieceBytes + 100);
  CHECK(second->header.last);
  CHECK(second->header.metadata == "tail");
  CheckPayload(*second, 1);
  const auto miss = get->Next();
  REQUIRE(miss.has_value());
  CHECK(miss->header.status == v1::CHUNK_STATUS_MISS);
  CHECK(miss->header.key_index == 1);
  CHECK(miss->pin == nullptr);
  CHECK_FALSE(get->done());
  const auto third = get->Next();
  REQUIRE(third.has_value());
  CHECK(third->header.key_index == 2);
  CheckPayload(*third, 3);
  CHECK_FALSE(get->Next().has_value());
  CHECK(get->done());
  CHECK(get->error().ok());
  CHECK(reader.wakes == 0);  // every answer came inside a call
  CHECK(reader.counters.get_frames == 4);
  CHECK(reader.counters.get_bytes == kLarge + 500);
}

TEST_CASE("frames hold their chunks, the get only those that have more to give") {
  Reader reader;
  for (const uint8_t name : {1, 2, 3}) reader.Put(name, 500);
  const auto get = reader.Begin({1, 2, 3});
  auto frame = get->Next();
  REQUIRE(frame.has_value());
  CHECK(reader.pinned() == 2);  // the first is the frame's alone
  get->Prepare();
  CHECK(reader.pinned() == 3);
  frame.reset();
  CHECK(reader.pinned() == 2);
  CHECK(reader.counters.pinned_bytes == 1000);
  get->Drop();
  CHECK(reader.pinned() == 0);
  CHECK(reader.pins.sessions() == 0);
  CHECK(get->done());
  CHECK_FALSE(get->Next().has_value());
}

TEST_CASE("frames may be larger, and a range of pieces is all that is given") {
  Reader reader;
  reader.Put(1, kLarge);
  const auto whole = reader.Begin({1}, {}, 4)->Next();
  REQUIRE(whole.has_value());
  CHECK(whole->header.frame_payload_bytes == kLarge);
  CHECK(whole->header.last);
  CheckPayload(*whole, 1);
  const auto range = reader.Begin({1}, {.first_piece = 1, .pieces = 1})->Next();
  REQUIRE(range.has_value());
  CHECK(range->header.offset == kPieceBytes);
  CHECK(range->header.frame_payload_bytes == kPieceBytes);
  CHECK(range->header.last);
  const auto nothing = reader.Begin({1}, {.first_piece = 9})->Next();
  REQUIRE(nothing.has_value());
  CHECK(nothing->header.status == v1::CHUNK_STATUS_HIT);
  CHECK(nothing->header.frame_payload_bytes == 0);
  CHECK(nothing->pin == nullptr);
}

TEST_CASE("a chunk on NVMe is given when its pieces have come, and wakes who waits for it") {
  Reader reader;
  reader.Put(1, kLarge);
  reader.Restart();
  const auto get = reader.Begin({1});
  CHECK_FALSE(get->Next().has_value());
  CHECK_FALSE(get->done());
  CHECK(reader.wakes == 0);
  reader.world.RunAll();
  CHECK(reader.wakes == 1);
  const auto frame = get->Next();
  REQUIRE(frame.has_value());
  CheckPayload(*frame, 1);
}

TEST_CASE("a get that is dropped while the store works is not woken, and holds nothing after") {
  Reader reader;
  reader.Put(1, kLarge);
  reader.Restart();
  const auto get = reader.Begin({1});
  CHECK_FALSE(get->Next().has_value());
  get->Drop();
  CHECK(reader.pinned() == 1);  // by the question
  reader.world.RunAll();
  CHECK(reader.wakes == 0);
  CHECK(reader.pinned() == 0);
}

TEST_CASE("a get without room waits until others were sent") {
  Reader reader(1000);  // a session may hold half, and one chunk more
  for (const uint8_t name : {1, 2, 3}) reader.Put(name, 600);
  const auto get = reader.Begin({1, 2, 3});
  auto first = get->Next();
  REQUIRE(first.has_value());
  CHECK(reader.pinned() == 1);
  CHECK_FALSE(get->Next().has_value());
  CHECK_FALSE(get->done());
  CHECK(reader.counters.pin_waits == 1);
  first.reset();
  CHECK(reader.wakes == 0);
  reader.pins.Poke();
  CHECK(reader.wakes == 1);
  auto second = get->Next();
  REQUIRE(second.has_value());
  CHECK_FALSE(get->Next().has_value());
  CHECK(reader.pins.UseOf(TenantId(0)).waiting == 1);
  get->Drop();
  CHECK(reader.pins.UseOf(TenantId(0)).waiting == 0);
  second.reset();
  reader.pins.Poke();
  CHECK(reader.wakes == 1);
  CHECK(reader.pins.sessions() == 0);
}

TEST_CASE("an ended session ends the get with an error, after what was pinned") {
  Reader reader;
  for (const uint8_t name : {1, 2}) reader.Put(name, 500);
  const auto get = reader.Begin({1, 2, 1});
  const auto first = get->Next();
  REQUIRE(first.has_value());
  reader.world.store().CloseSession(reader.session);
  const auto second = get->Next();
  CHECK(second.has_value());
  CHECK_FALSE(get->Next().has_value());
  CHECK(get->done());
  CHECK(absl::IsFailedPrecondition(get->error()));
}

}  // namespace kvkeep
