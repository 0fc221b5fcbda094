#include <thread>

#include "tests/server/bulk/raw_bulk.h"
#include "tests/server/grpc/service_harness.h"

namespace kvkeep {
namespace {

using bulk::FrameKind;

class BulkDaemon {
 public:
  BulkDaemon() {
    daemon_.Stop();
    daemon_.options().tenants[0].bulk.path = dir_ / "bulk.sock";
    daemon_.options().stall_timeout = std::chrono::milliseconds(1'000);
    daemon_.Start();
    client_.emplace(daemon_);
  }

  std::string path() const { return dir_ / "bulk.sock"; }
  TestDaemon& daemon() { return daemon_; }
  TestClient& client() { return *client_; }
  RawBulk Greeted() const {
    RawBulk bulk(path());
    bulk.Hello();
    return bulk;
  }
  v1::PutFrame PutOf(int key, uint64_t bytes, bool first) const {
    v1::PutFrame frame = client_->FirstFrame(key, bytes);
    if (!first) frame.clear_stream();
    return frame;
  }
  std::string GetOf(const std::vector<int>& keys) const {
    auto request = client_->About<v1::GetRequest>(keys);
    request.set_metadata(true);
    return request.SerializeAsString();
  }
  // Puts one chunk by `bulk`.
  v1::PutResult Put(RawBulk& bulk, int key, const std::string& payload) const {
    bulk.Send(FrameKind::kPut, PutOf(key, payload.size(), true).SerializeAsString(),
              WithTrailer(payload));
    bulk.Send(FrameKind::kPutDone, "");
    const auto result = bulk.Expect<v1::PutResult>(FrameKind::kResult);
    CHECK(bulk.ExpectEnd().code() == 0);
    return result;
  }
  // Gets one chunk by `bulk`; none if it is no hit.
  std::optional<std::string> Get(RawBulk& bulk, int key) const {
    bulk.Send(FrameKind::kGet, GetOf({key}));
    std::string payload;
    bool hit = true;
    while (true) {
      const std::optional<RawBulk::Frame> frame = bulk.Receive();
      REQUIRE(frame.has_value());
      if (frame->head.kind == FrameKind::kEnd) break;
      REQUIRE(frame->head.kind == FrameKind::kChunk);
      v1::GetFrame header;
      REQUIRE(header.ParseFromString(frame->message));
      hit = hit && header.status() == v1::CHUNK_STATUS_HIT;
      if (hit) CHECK(header.offset() == payload.size());
      payload += frame->payload;
    }
    return hit ? std::optional(payload) : std::nullopt;
  }
  // Returns a counter of the daemon's status.
  uint64_t Count(const std::string& name) const {
    const v1::StatusResponse status = daemon_.Status();
    const auto found = status.counters().find(name);
    return found == status.counters().end() ? 0 : found->second;
  }
  template <typename F>
  bool Soon(F condition) const {
    return daemon_.Eventually([&](const v1::StatusResponse&) { return condition(); });
  }

 private:
  ScratchDir dir_;
  TestDaemon daemon_;
  std::optional<TestClient> client_;
};

TEST_CASE("chunks of many sizes are put and got by the bulk door, and found by gRPC") {
  const BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  int key = 0;
  for (const size_t bytes : {size_t{1}, size_t{4096}, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1,
                             3 * kPieceBytes + 4097}) {
    INFO(bytes);
    const std::string payload = TestBytes(bytes, bytes);
    CHECK(daemon.Put(bulk, ++key, payload).status() == v1::PUT_STATUS_STORED);
    CHECK(daemon.Put(bulk, key, payload).status() == v1::PUT_STATUS_PRESENT);
    CHECK(daemon.Get(bulk, key) == payload);
  }
  CHECK(daemon.Get(bulk, 99) == std::nullopt);
}

TEST_CASE("a put whose bytes changed on the way is rejected, and the chunk stays absent") {
  const BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  for (const size_t spoilt : {size_t{0}, kPieceBytes + 5, 2 * kPieceBytes - 1}) {
    std::string framed = WithTrailer(TestBytes(1, 2 * kPieceBytes));
    framed[spoilt] ^= 1;
    bulk.Send(FrameKind::kPut, daemon.PutOf(1, 2 * kPieceBytes, true).SerializeAsString(), framed);
    bulk.Send(FrameKind::kPutDone, "");
    const auto result = bulk.Expect<v1::PutResult>(FrameKind::kResult);
    CHECK(result.status() == v1::PUT_STATUS_REJECTED);
    CHECK(result.reason() == v1::REJECT_REASON_WRONG_CHECKSUM);
    CHECK(bulk.ExpectEnd().code() == 0);
    CHECK(daemon.Get(bulk, 1) == std::nullopt);
  }
  CHECK(daemon.Put(bulk, 1, "right").status() == v1::PUT_STATUS_STORED);
}

TEST_CASE("the results of a long put come in order while the client still sends") {
  const BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  constexpr int kChunks = 200;
  int results = 0;
  std::thread reader([&] {
    for (; results < kChunks; ++results) {
      const auto result = bulk.Expect<v1::PutResult>(FrameKind::kResult);
      if (result.ordinal() != static_cast<uint32_t>(results)) return;
    }
  });
  for (int i = 0; i < kChunks; ++i) {
    v1::PutFrame frame = daemon.PutOf(i, 5000, i == 0);
    frame.mutable_chunk()->set_durable(i % 3 == 0);
    bulk.Send(FrameKind::kPut, frame.SerializeAsString(), WithTrailer(TestBytes(i, 5000)));
  }
  bulk.Send(FrameKind::kPutDone, "");
  reader.join();
  CHECK(results == kChunks);
  CHECK(bulk.ExpectEnd().code() == 0);
  CHECK(daemon.Get(bulk, 7) == TestBytes(7, 5000));
}

TEST_CASE("a client that breaks the protocol is told why and cut off") {
  BulkDaemon daemon;
  const std::string put = daemon.PutOf(1, 10, true).SerializeAsString();
  const std::string big(70'000, 'x');
  struct Wrong {
    const char* why;
    std::function<void(RawBulk&)> say;
  };
  v1::PutFrame with_payload = daemon.PutOf(1, 10, true);
  with_payload.set_payload("0123456789");
  v1::PutFrame no_stream = daemon.PutOf(1, 10, false);
  const std::vector<Wrong> all = {
      {"kind 7 is not due", [](RawBulk& b) { b.Send(FrameKind::kResult, ""); }},
      {"kind 6 is not due", [](RawBulk& b) { b.Send(FrameKind::kPutDone, ""); }},
      {"is not due here", [](RawBulk& b) { b.Send(FrameKind::kHello, ""); }},
      {"has no payload", [](RawBulk& b) { b.Send(FrameKind::kGet, "", "x"); }},
      {"message_bytes: 70000", [&](RawBulk& b) { b.Send(FrameKind::kPut, big); }},
      {"PutFrame: not valid", [](RawBulk& b) { b.Send(FrameKind::kPut, "\xff\xff", "x"); }},
      {"payload_bytes of the frame: 10",
       [&](RawBulk& b) { b.Send(FrameKind::kPut, put, "0123456789"); }},
      {"not by the bulk door",
       [&](RawBulk& b) { b.Send(FrameKind::kPut, with_payload.SerializeAsString(), "x"); }},
      {"stream: missing",
       [&](RawBulk& b) {
         b.Send(FrameKind::kPut, no_stream.SerializeAsString(), WithTrailer("0123456789"));
       }},
  };
  for (const Wrong& wrong : all) {
    INFO(wrong.why);
    RawBulk bulk = daemon.Greeted();
    wrong.say(bulk);
    const v1::BulkEnd end = bulk.ExpectEndOfConnection();
    CHECK(end.code() == static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
    CHECK_THAT(end.message(), Catch::Contains(wrong.why));
  }
  RawBulk stranger(daemon.path());
  stranger.SendBytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK_THAT(stranger.ExpectEndOfConnection().message(), Catch::Contains("is not due"));
  CHECK(daemon.Soon([&] { return daemon.Count("open_bulk_connections") == 0; }));
  RawBulk still = daemon.Greeted();
  CHECK(daemon.Put(still, 1, "0123456789").status() == v1::PUT_STATUS_STORED);
}

TEST_CASE("a version that the daemon does not know is refused with the one that it has") {
  const BulkDaemon daemon;
  RawBulk bulk(daemon.path());
  v1::BulkHello hello;
  hello.set_min_version(2);
  hello.set_max_version(9);
  bulk.Send(FrameKind::kHello, hello.SerializeAsString());
  const v1::BulkEnd end = bulk.ExpectEndOfConnection();
  CHECK(end.code() == static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(end.message(), Catch::Contains("version 1"));
}

TEST_CASE("wrong gets end the call alone, and the connection serves the next one") {
  BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  CHECK(daemon.Put(bulk, 1, "bytes").status() == v1::PUT_STATUS_STORED);
  bulk.Send(FrameKind::kGet, "\xff\xff\xff");
  CHECK_THAT(bulk.ExpectEnd().message(), Catch::Contains("GetRequest"));
  auto request = daemon.client().About<v1::GetRequest>({1});
  request.set_session_token("0123456789abcdef");
  bulk.Send(FrameKind::kGet, request.SerializeAsString());
  CHECK(bulk.ExpectEnd().code() == static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  auto leased = daemon.client().About<v1::GetRequest>({1});
  leased.set_lease_id(12'345);
  bulk.Send(FrameKind::kGet, leased.SerializeAsString());
  const v1::BulkEnd no_lease = bulk.ExpectEnd();  // the store's error, after the call began
  CHECK(no_lease.code() == static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(no_lease.message(), Catch::Contains("lease"));
  CHECK(daemon.Get(bulk, 1) == "bytes");
}

TEST_CASE("the end of a session ends its calls, and a put under way gives its space back") {
  BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  const std::string framed = WithTrailer(TestBytes(3, kPieceBytes));
  const v1::PutFrame frame = daemon.PutOf(3, kPieceBytes, true);
  bulk.Send(FrameKind::kPut, frame.SerializeAsString(), framed);
  CHECK(bulk.Expect<v1::PutResult>(FrameKind::kResult).status() == v1::PUT_STATUS_STORED);
  daemon.client().EndSession();
  REQUIRE(daemon.daemon().Eventually(
      [](const v1::StatusResponse& status) { return status.sessions().empty(); }));
  v1::PutFrame next = daemon.PutOf(4, kPieceBytes, false);
  bulk.Send(FrameKind::kPut, next.SerializeAsString(), framed);
  CHECK(bulk.ExpectEndOfConnection().code() ==
        static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
}

TEST_CASE("a client that leaves amid a put or a get leaves nothing behind") {
  BulkDaemon daemon;
  const std::string payload = TestBytes(5, 8 * kPieceBytes);
  {
    RawBulk bulk = daemon.Greeted();
    CHECK(daemon.Put(bulk, 5, payload).status() == v1::PUT_STATUS_STORED);
    bulk.Send(FrameKind::kGet, daemon.GetOf({5}));  // more than the socket takes
    REQUIRE(daemon.Soon([&] { return daemon.Count("pinned_chunks") == 1; }));
  }
  CHECK(daemon.Soon([&] { return daemon.Count("pinned_chunks") == 0; }));
  {
    RawBulk bulk = daemon.Greeted();
    bulk.SendBytes(bulk::EncodeHead(FrameKind::kPut, 0, 100).substr(0, 9));
  }
  {
    RawBulk bulk = daemon.Greeted();
    const v1::PutFrame frame = daemon.PutOf(6, payload.size(), true);
    const std::string message = frame.SerializeAsString(), framed = WithTrailer(payload);
    bulk.SendBytes(bulk::EncodeHead(FrameKind::kPut, message.size(), framed.size()) + message +
                   framed.substr(0, 3 * kPieceBytes + 17));
  }
  CHECK(daemon.Soon([&] { return daemon.Count("open_bulk_connections") == 0; }));
  RawBulk bulk = daemon.Greeted();
  CHECK(daemon.Put(bulk, 6, payload).status() == v1::PUT_STATUS_STORED);
  CHECK(daemon.Get(bulk, 6) == payload);
}

TEST_CASE("a client that keeps its call waiting is told of the stall timeout, and cut off") {
  BulkDaemon daemon;
  RawBulk sender = daemon.Greeted();
  const v1::PutFrame frame = daemon.PutOf(7, kPieceBytes, true);
  const std::string message = frame.SerializeAsString();
  sender.SendBytes(bulk::EncodeHead(FrameKind::kPut, message.size(), kPieceBytes + 8) + message);
  CHECK_THAT(sender.ExpectEndOfConnection().message(), Catch::Contains("limits.stall_timeout"));

  RawBulk reader = daemon.Greeted();
  CHECK(daemon.Put(reader, 8, TestBytes(8, 8 * kPieceBytes)).status() == v1::PUT_STATUS_STORED);
  reader.Send(FrameKind::kGet, daemon.GetOf({8}));
  CHECK(daemon.Soon([&] { return daemon.Count("open_bulk_connections") == 0; }));
  CHECK(daemon.Count("stalled_streams") == 2);
  CHECK(daemon.Count("pinned_chunks") == 0);
  RawBulk idle = daemon.Greeted();
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));  // an idle client may stay
  CHECK(daemon.Get(idle, 8) == TestBytes(8, 8 * kPieceBytes));
}

TEST_CASE("calls that were sent ahead are served one after the other") {
  const BulkDaemon daemon;
  RawBulk bulk = daemon.Greeted();
  CHECK(daemon.Put(bulk, 1, "one").status() == v1::PUT_STATUS_STORED);
  for (int i = 0; i < 20; ++i) bulk.Send(FrameKind::kGet, daemon.GetOf({1, 2}));
  for (int i = 0; i < 20; ++i) {
    CHECK(bulk.Expect<v1::GetFrame>(FrameKind::kChunk).status() == v1::CHUNK_STATUS_HIT);
    CHECK(bulk.Expect<v1::GetFrame>(FrameKind::kChunk).status() == v1::CHUNK_STATUS_MISS);
    CHECK(bulk.ExpectEnd().code() == 0);
  }
}

TEST_CASE("a daemon that stops lets a call end, and closes idle connections") {
  BulkDaemon daemon;
  RawBulk idle = daemon.Greeted();
  daemon.daemon().Stop();
  CHECK_FALSE(idle.Receive().has_value());
}

}  // namespace
}  // namespace kvkeep
