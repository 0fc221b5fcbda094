#include <catch2/catch.hpp>
#include <numeric>

#include "tests/server/grpc/service_harness.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

std::string PayloadOf(const std::vector<v1::GetFrame>& frames) {
  std::string payload;
  for (const v1::GetFrame& frame : frames) {
    CHECK(frame.status() == v1::CHUNK_STATUS_HIT);
    CHECK(frame.offset() == payload.size());
    CHECK(frame.payload().size() <= 4 * kMiB);
    CHECK(static_cast<size_t>(frame.piece_checksums_size()) == PieceCount(frame.payload().size()));
    for (int piece = 0; piece < frame.piece_checksums_size(); ++piece) {
      const absl::string_view bytes =
          absl::string_view(frame.payload()).substr(piece * kPieceBytes, kPieceBytes);
      CHECK(Xxh3(AsBytes(bytes)) == frame.piece_checksums(piece));
    }
    payload += frame.payload();
  }
  return payload;
}

bool Contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("what was put is got: whole, in frames of whole pieces, with its metadata") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  const std::string payload = TestBytes(1, (9 << 20) + 17);
  const v1::PutResult put =
      client.PutChunk(1, payload, [](v1::PutChunkHeader* header) { header->set_metadata("tail"); });
  CHECK(put.status() == v1::PUT_STATUS_STORED);

  auto request = client.About<v1::GetRequest>({1, 2});
  request.set_metadata(true);
  auto [frames, status] = client.Get(request);
  REQUIRE(status.ok());
  REQUIRE(frames.size() == 6);  // ten pieces by two, and the miss
  CHECK(frames[5].key_index() == 1);
  CHECK(frames[5].status() == v1::CHUNK_STATUS_MISS);
  CHECK(frames[5].last());
  frames.pop_back();
  CHECK(frames[4].last());
  CHECK(frames[4].metadata() == "tail");
  CHECK(frames[0].metadata().empty());
  CHECK(PayloadOf(frames) == payload);
}

TEST_CASE("a range of pieces is got without the rest, the metadata with it") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  const std::string payload = TestBytes(2, 7 << 20);
  client.PutChunk(1, payload, [](v1::PutChunkHeader* header) { header->set_metadata("tail"); });
  auto request = client.About<v1::GetRequest>({1});
  request.set_first_piece(2);
  request.set_pieces(3);
  request.set_metadata(true);
  const auto [frames, status] = client.Get(request);
  REQUIRE(status.ok());
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].offset() == 2 * kMiB);
  CHECK(frames[1].offset() == 4 * kMiB);
  CHECK(frames[0].payload_bytes() == payload.size());
  CHECK(frames[0].payload() + frames[1].payload() == payload.substr(2 << 20, 3 << 20));
  CHECK(frames[0].metadata().empty());
  CHECK(frames[1].metadata() == "tail");

  request.set_first_piece(100);  // behind the chunk's end: it is there, with nothing of it to send
  const auto [beyond, beyond_status] = client.Get(request);
  REQUIRE(beyond_status.ok());
  REQUIRE(beyond.size() == 1);
  CHECK(beyond[0].status() == v1::CHUNK_STATUS_HIT);
  CHECK(beyond[0].payload().empty());
  CHECK(beyond[0].last());
}

TEST_CASE("a get that asks beyond the node: at once where nothing is there, with a limit") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  client.PutChunk(1, "bytes");
  auto request = client.About<v1::GetRequest>({1, 2});
  request.set_remote_wait_us(10'000'000);
  const auto [frames, status] = client.Get(request);
  REQUIRE(status.ok());
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].payload() == "bytes");
  CHECK(frames[1].status() == v1::CHUNK_STATUS_MISS);
  request.set_remote_wait_us(10'000'001);
  CHECK(client.Get(request).second.error_message() ==
        "remote_wait_us is 10000001, allowed are at most 10000000");
}

TEST_CASE("durable puts are answered in order and are served from NVMe after a restart") {
  TestDaemon daemon;
  std::vector<std::string> payloads;
  {
    const TestClient client(daemon);
    std::vector<v1::PutFrame> frames;
    for (int key = 0; key < 6; ++key) {
      payloads.push_back(TestBytes(key, 3'000'000 + key));
      v1::PutFrame frame = client.FirstFrame(key, payloads.back().size());
      if (key > 0) frame.clear_stream();
      frame.mutable_chunk()->set_durable(key % 2 == 0);
      frame.set_payload(payloads.back());
      frames.push_back(frame);
    }
    const auto [results, status] = client.Put(frames);
    REQUIRE(status.ok());
    REQUIRE(results.size() == 6);
    for (uint32_t i = 0; i < 6; ++i) {
      CHECK(results[i].ordinal() == i);
      CHECK(results[i].status() == v1::PUT_STATUS_STORED);
    }
  }
  daemon.Stop();
  daemon.Start();
  const TestClient client(daemon);
  const auto lookup = client.About<v1::LookupRequest>({0, 2, 4});
  v1::LookupResponse found;
  grpc::ClientContext context;
  REQUIRE(client.stub->Lookup(&context, lookup, &found).ok());
  CHECK(found.leading_keys() == 3);
  CHECK(found.g3_parts() == std::string("\1\1\1"));
  CHECK(found.promotion_us() > 0);
  for (const int key : {0, 2, 4}) {
    const auto [frames, status] = client.Get(client.About<v1::GetRequest>({key}));
    REQUIRE(status.ok());
    CHECK(PayloadOf(frames) == payloads[key]);
  }
  CHECK(daemon.Status().g3().hits() == 3);
}

TEST_CASE(
    "a chunk that is there is PRESENT; wrong sizes and checksums are REJECTED; the stream goes "
    "on") {
  const TestDaemon daemon;
  const TestClient client(daemon, 1000);
  const std::string payload = TestBytes(3, 1000);
  const auto chunk = [&](int key, const std::string& bytes) {
    v1::PutFrame frame = client.FirstFrame(key, bytes.size());
    frame.set_payload(bytes);
    return frame;
  };
  std::vector<v1::PutFrame> frames = {
      chunk(1, payload), chunk(1, payload), chunk(2, TestBytes(4, 999)),
      chunk(3, payload), chunk(4, ""),      chunk(5, payload)};
  for (size_t i = 1; i < frames.size(); ++i) frames[i].clear_stream();
  frames[3].mutable_chunk()->set_checksum(12345);
  frames[5].mutable_chunk()->set_checksum(Xxh3(AsBytes(payload)));
  const auto [results, status] = client.Put(frames);
  REQUIRE(status.ok());
  REQUIRE(results.size() == 6);
  CHECK(results[0].status() == v1::PUT_STATUS_STORED);
  CHECK(results[1].status() == v1::PUT_STATUS_PRESENT);
  CHECK(results[2].reason() == v1::REJECT_REASON_WRONG_SIZE);
  CHECK(Contains(results[2].message(), "bytes_per_part is 1000"));
  CHECK(results[3].reason() == v1::REJECT_REASON_WRONG_CHECKSUM);
  CHECK(results[4].reason() == v1::REJECT_REASON_WRONG_SIZE);
  CHECK(results[5].status() == v1::PUT_STATUS_STORED);
}

TEST_CASE("an aborted chunk has no result but counts in the ordinals") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  std::vector<v1::PutFrame> frames = {client.FirstFrame(1, 100), {}};
  frames[0].set_payload("begun");
  frames[1].set_abort(true);
  *frames[1].mutable_chunk() = client.FirstFrame(2, 3).chunk();
  frames[1].set_payload("abc");
  const auto [results, status] = client.Put(frames);
  REQUIRE(status.ok());
  REQUIRE(results.size() == 1);
  CHECK(results[0].ordinal() == 1);
  CHECK(daemon.Status().g2().reserved_bytes() == 0);
}

TEST_CASE("a Put that breaks the protocol ends with INVALID_ARGUMENT that names the field") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  std::vector<v1::PutFrame> frames = {client.FirstFrame(1, 100)};
  std::string field;
  SECTION("no stream header") {
    frames[0].clear_stream();
    field = "stream:";
  }
  SECTION("a second stream header") {
    frames.push_back(client.FirstFrame(2, 10));
    field = "stream:";
  }
  SECTION("a short key") {
    frames[0].mutable_chunk()->set_key("short");
    field = "chunk.key: 5 bytes; must be 32";
  }
  SECTION("a part that the namespace has not") {
    frames[0].mutable_chunk()->set_part(4);
    field = "chunk.part: 4";
  }
  SECTION("metadata too long") {
    frames[0].mutable_chunk()->set_metadata(std::string(16385, 'm'));
    field = "at most 16384";
  }
  SECTION("a frame too long") {
    frames[0].mutable_chunk()->set_payload_bytes(5 << 20);
    frames[0].set_payload(std::string((4 << 20) + 1, 'p'));
    field = "at most 4194304";
  }
  SECTION("more payload than said") {
    frames[0].set_payload(std::string(101, 'p'));
    field = "payload: chunk 0 has payload_bytes 100; 1 bytes more came";
  }
  SECTION("a chunk within a chunk") {
    frames.push_back(client.FirstFrame(2, 10));
    frames[1].clear_stream();
    field = "chunk: chunk 0 is in progress";
  }
  SECTION("payload without a chunk") {
    frames[0].clear_chunk();
    frames[0].set_payload("p");
    field = "payload: no chunk";
  }
  SECTION("an end within a chunk") { field = "the stream ended within chunk 0: 0 of 100"; }
  const auto [results, status] = client.Put(frames);
  CHECK(results.empty());
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  INFO(status.error_message());
  CHECK(Contains(status.error_message(), field));
  CHECK(daemon.Eventually(
      [](const v1::StatusResponse& now) { return now.g2().reserved_bytes() == 0; }));
}

TEST_CASE("malformed calls are INVALID_ARGUMENT that names the field, and counted") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  auto request = client.About<v1::LookupRequest>({1});
  std::string field;
  SECTION("half a key") {
    request.mutable_keys()->pop_back();
    field = "keys: 31 bytes";
  }
  SECTION("no key") {
    request.clear_keys();
    field = "keys: 0 bytes";
  }
  SECTION("a part twice") {
    request.add_parts(0);
    field = "parts: 0 is named twice";
  }
  SECTION("a part that is not there") {
    request.add_parts(4);
    field = "parts: 4";
  }
  SECTION("too many chunks") {
    request.set_keys(std::string(32 * 40000, 'k'));
    request.add_parts(1);
    field = "= 80000; at most 65536";
  }
  SECTION("a token that is none") {
    request.set_session_token("x");
    field = "session_token: 1 bytes; must be 16";
  }
  v1::LookupResponse response;
  grpc::ClientContext context;
  const grpc::Status status = client.stub->Lookup(&context, request, &response);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  INFO(status.error_message());
  CHECK(Contains(status.error_message(), field));
  CHECK(daemon.Status().counters().at("invalid_requests") == 1);
}

TEST_CASE(
    "a session ends with its stream, gives back its leases, and later calls say which start this "
    "is") {
  const TestDaemon daemon;
  TestClient client(daemon);
  client.PutChunk(1, "payload");
  auto lookup = client.About<v1::LookupRequest>({1});
  lookup.set_lease_mode(v1::LEASE_MODE_LEADING_RUN);
  v1::LookupResponse found;
  grpc::ClientContext lookup_context;
  REQUIRE(client.stub->Lookup(&lookup_context, lookup, &found).ok());
  CHECK(found.leased_keys() == 1);
  CHECK(daemon.Status().g2().leased_bytes() > 0);

  client.EndSession();
  CHECK(daemon.Eventually([](const v1::StatusResponse& now) {
    return now.sessions().empty() && now.g2().leased_bytes() == 0;
  }));
  const auto [frames, status] = client.Get(client.About<v1::GetRequest>({1}));
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(Contains(status.error_message(), absl::StrCat(daemon.Status().incarnation())));
}

TEST_CASE("a Get past its deadline ends so, and pins nothing afterwards") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  for (int key = 0; key < 3; ++key) client.PutChunk(key, TestBytes(key, 12 << 20));
  {
    grpc::ClientContext context;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(3);
    context.set_deadline(deadline);
    const auto call = client.stub->Get(&context, client.About<v1::GetRequest>({0, 1, 2}));
    CHECK(daemon.Eventually([](const v1::StatusResponse& now) {
      return now.counters().at("pinned_chunks") == 2 ||  // the window, however slow the client
             now.counters().at("cancelled_streams") > 0;
    }));
    // Reads nothing.
    std::this_thread::sleep_until(deadline + std::chrono::milliseconds(100));
    for (v1::GetFrame frame; call->Read(&frame);) continue;
    CHECK(call->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  CHECK(daemon.Eventually([](const v1::StatusResponse& now) {
    return now.counters().at("pinned_chunks") == 0 && now.counters().at("open_get_streams") == 0;
  }));
  CHECK(daemon.Status().counters().at("cancelled_streams") == 1);
}

TEST_CASE("a Put whose client leaves gives its space back") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  {
    grpc::ClientContext context;
    const auto call = client.stub->Put(&context);
    v1::PutFrame frame = client.FirstFrame(1, 8 << 20);
    frame.set_payload(TestBytes(1, 1 << 20));
    REQUIRE(call->Write(frame));
    CHECK(daemon.Eventually(
        [](const v1::StatusResponse& now) { return now.g2().reserved_bytes() >= 8 << 20; }));
    context.TryCancel();
    call->Finish();
  }
  CHECK(daemon.Eventually([](const v1::StatusResponse& now) {
    return now.g2().reserved_bytes() == 0 && now.counters().at("open_put_streams") == 0;
  }));
}

TEST_CASE("touch, prefetch, release, delete and clear answer for the chunks they are about") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  client.PutChunk(1, "one");
  client.PutChunk(2, "two");
  grpc::ClientContext touch, prefetch, release, del, clear;
  v1::TouchResponse touched;
  REQUIRE(client.stub->Touch(&touch, client.About<v1::TouchRequest>({1, 2, 3}), &touched).ok());
  CHECK(touched.touched_chunks() == 2);
  v1::PrefetchResponse fetched;
  REQUIRE(client.stub->Prefetch(&prefetch, client.About<v1::PrefetchRequest>({1}), &fetched).ok());
  CHECK(fetched.ready_chunks() == 1);
  v1::ReleaseRequest unknown;
  unknown.set_session_token(client.session);
  unknown.set_lease_id(77);
  v1::ReleaseResponse released;
  CHECK(client.stub->Release(&release, unknown, &released).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  v1::DeleteResponse deleted;
  REQUIRE(client.stub->Delete(&del, client.About<v1::DeleteRequest>({1}), &deleted).ok());
  CHECK(deleted.deleted_chunks() == 1);
  v1::ClearResponse cleared;
  REQUIRE(v1::Admin::NewStub(daemon.AdminChannel())->Clear(&clear, {}, &cleared).ok());
  CHECK(cleared.cleared_chunks() == 1);
}

TEST_CASE("ShowReuse tells how far back lay what lookups asked for") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  client.PutChunk(1, "one");
  client.PutChunk(2, "two");
  grpc::ClientContext lookup, show;
  v1::LookupResponse found;
  REQUIRE(client.stub->Lookup(&lookup, client.About<v1::LookupRequest>({1, 3}), &found).ok());
  v1::ShowReuseResponse told;
  REQUIRE(v1::Admin::NewStub(daemon.AdminChannel())->ShowReuse(&show, {}, &told).ok());
  CHECK(told.lookups() == 1);
  CHECK(told.wanted_chunks() == 2);
  CHECK(told.found_chunks() == 1);
  CHECK(told.cold_chunks() == 1);
  CHECK(told.stored_chunks() == 2);
  CHECK(told.stored_bytes() == 2 * 8192);  // a header and a block each
  REQUIRE(told.distances_size() == 1);     // 1 lies behind 2
  CHECK(told.distances(0).chunks() == 1);
  CHECK(told.distances(0).below_bytes() > 2 * 8192);
  CHECK(told.distances(0).below_bytes() <= 2 * 8192 * 17 / 16);
  CHECK(told.sampled_chunks() == 3);
  CHECK(told.sampled_share() == 1);
}

TEST_CASE("a drain writes everything back, tells the clients, and refuses new sessions") {
  const TestDaemon daemon;
  const TestClient client(daemon);
  for (int key = 0; key < 5; ++key) client.PutChunk(key, TestBytes(key, 1 << 20));
  v1::DrainResponse drained;
  grpc::ClientContext drain;
  REQUIRE(v1::Admin::NewStub(daemon.AdminChannel())->Drain(&drain, {}, &drained).ok());
  CHECK(drained.dirty_chunks_left() == 0);
  CHECK(daemon.Status().state() == v1::SERVING_STATE_DRAINING);
  CHECK(daemon.Status().g3().chunks() == 5);
  grpc::ClientContext again;
  const auto refused = client.stub->OpenSession(&again, {});
  v1::SessionEvent event;
  CHECK_FALSE(refused->Read(&event));
  CHECK_FALSE(refused->Finish().ok());
  CHECK(client.PutChunk(9, "late").reason() == v1::REJECT_REASON_DRAINING);
}

TEST_CASE("the admin service is not to be had on the clients' socket") {
  const TestDaemon daemon;
  v1::StatusResponse response;
  grpc::ClientContext context;
  CHECK(v1::Admin::NewStub(daemon.Channel())->Status(&context, {}, &response).error_code() ==
        grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("a second daemon with the same state or socket refuses in one line") {
  TestDaemon daemon;
  DaemonOptions other = daemon.options();
  CHECK(Contains(std::string(Daemon::Start(other, "test").status().message()),
                 "in use by another daemon"));
  other.storage.state_dir += "2";
  const absl::Status status = Daemon::Start(other, "test").status();
  CHECK(Contains(std::string(status.message()), "kv.sock: in use by another daemon"));
  CHECK_FALSE(Contains(std::string(status.message()), "\n"));
}

TEST_CASE(
    "a known device that is broken is shown as offline and done without, unless it is required") {
  TestDaemon daemon;
  daemon.Stop();
  std::filesystem::resize_file(daemon.options().storage.devices[0].dir + "/superblock", 100);
  DaemonOptions required = daemon.options();
  required.storage.devices[0].required = true;
  const absl::Status refused = Daemon::Start(required, "test").status();
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK(Contains(std::string(refused.message()), "the device is required"));

  daemon.Start();
  const v1::StatusResponse status = daemon.Status();
  REQUIRE(status.devices_size() == 1);
  CHECK(status.devices(0).state() == "offline");
  CHECK_FALSE(status.devices(0).message().empty());
  const TestClient client(daemon);
  CHECK(client.PutChunk(1, "kept in DRAM").status() == v1::PUT_STATUS_STORED);
  const v1::PutResult durable = client.PutChunk(
      2, "not to be made durable", [](v1::PutChunkHeader* header) { header->set_durable(true); });
  CHECK(durable.reason() == v1::REJECT_REASON_NOT_DURABLE);
}

TEST_CASE("over its rate a tenant is told when to come back, and what was put before is kept") {
  TestDaemon daemon;
  daemon.Stop();
  // Paid off in minutes, so the test does not depend on its own speed.
  daemon.options().storage.store.tenants = {
      {.g2_segments = 1, .keys_per_second = 1'000, .bytes_per_second = 100'000}};
  daemon.options().storage.arena.segment_bytes = 64 * kMiB;
  daemon.Start();
  const TestClient client(daemon);
  const std::string payload = TestBytes(1, 10 << 20);
  std::vector<v1::PutFrame> frames;
  for (int key = 1; key <= 2; ++key) {
    frames.push_back(client.FirstFrame(key, payload.size()));
    if (key > 1) frames.back().clear_stream();
    for (size_t at = 0; at < payload.size(); at += 4 << 20) {
      frames.emplace_back().set_payload(payload.substr(at, 4 << 20));
    }
  }
  const auto over = [](const grpc::Status& status, const char* limit) {
    INFO(status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(status.error_message().find(limit) == 0);
    CHECK(status.error_message().find("come back in ") != std::string::npos);
  };
  // The first chunk overdraws; the second ends the stream before its payload is taken.
  const auto [results, put] = client.Put(frames);
  over(put, "bytes_per_second: ");
  REQUIRE(results.size() == 1);
  CHECK(results[0].status() == v1::PUT_STATUS_STORED);
  CHECK(daemon.Status().counters().at("put_received_bytes") == payload.size());
  CHECK(daemon.Status().counters().at("put_discarded_bytes") == 0);
  const auto [gets, got] = client.Get(client.About<v1::GetRequest>({1}));
  over(got, "bytes_per_second: ");
  CHECK(gets.empty());

  std::vector<int> keys(60'000);
  std::iota(keys.begin(), keys.end(), 1);
  v1::LookupResponse found;
  grpc::ClientContext context;
  const auto many = client.About<v1::LookupRequest>(keys);
  REQUIRE(client.stub->Lookup(&context, many, &found).ok());
  CHECK(found.leading_keys() == 1);
  grpc::ClientContext again;
  over(client.stub->Lookup(&again, client.About<v1::LookupRequest>({1}), &found),
       "keys_per_second: ");
  const v1::StatusResponse status = daemon.Status();
  CHECK(status.tenants(0).byte_rate_refusals() == 2);
  CHECK(status.tenants(0).key_rate_refusals() == 1);
  CHECK(status.tenants(0).keys_per_second() == 1'000);
}

namespace {

// A daemon whose tenant pays off a frame in 40 seconds, and has chunk 1.
struct SlowTenant {
  static constexpr uint64_t kFrame = 4 << 20;
  static constexpr int kFrames = 8;
  TestDaemon daemon;
  std::optional<TestClient> client;

  SlowTenant() {
    daemon.Stop();
    daemon.options().storage.store.tenants = {{.g2_segments = 1, .bytes_per_second = 100'000}};
    daemon.options().storage.arena.segment_bytes = 64 * kMiB;
    daemon.Start();
    client.emplace(daemon);
    REQUIRE(client->PutChunk(1, "stored").status() == v1::PUT_STATUS_STORED);
  }
  std::vector<v1::PutFrame> ChunkOne(uint64_t said_bytes) const {
    std::vector<v1::PutFrame> frames = {client->FirstFrame(1, said_bytes)};
    for (int i = 0; i < kFrames; ++i) frames.emplace_back().set_payload(TestBytes(1, kFrame));
    return frames;
  }
  void IsOver(const grpc::Status& status, uint64_t discarded_bytes) const {
    INFO(status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(status.error_message().find("bytes_per_second: ") == 0);
    CHECK(daemon.Status().counters().at("put_discarded_bytes") == discarded_bytes);
    CHECK(daemon.Status().tenants(0).byte_rate_refusals() == 1);
  }
};

}  // namespace

TEST_CASE_METHOD(SlowTenant, "a put that is PRESENT goes on to its end, and the next one pays") {
  std::vector<v1::PutFrame> frames = ChunkOne(kFrames * kFrame);
  frames.push_back(client->FirstFrame(2, kFrame));
  frames.back().clear_stream();
  const auto [results, status] = client->Put(frames);
  REQUIRE(results.size() == 1);
  CHECK(results[0].status() == v1::PUT_STATUS_PRESENT);
  IsOver(status, kFrames * kFrame);
}

TEST_CASE_METHOD(SlowTenant, "payload of a put that never could be stored is paid frame by frame") {
  const auto [results, status] = client->Put(ChunkOne(uint64_t{1} << 40));
  CHECK(results.empty());
  IsOver(status, 2 * kFrame);  // the first one overdraws, the second ends the stream
}

}  // namespace kvkeep
