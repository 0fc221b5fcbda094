// The client against a daemon that behaves.
#include "client/client.h"

#include <catch2/catch.hpp>

#include "client/admin.h"
#include "tests/client/fixture.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

TEST_CASE("what was put comes back, from one byte to many frames") {
  ClientFixture f;
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, size_t{33 * kMiB}}) {
    const ChunkKey key = Key(absl::StrCat("size ", bytes));
    const std::vector<std::byte> payload = Bytes(bytes, bytes);
    auto put = f.client->Put(f.ns, {Chunk(key, payload)});
    REQUIRE(put.ok());
    REQUIRE(put->chunks[0].status == PutStatus::kStored);
    std::vector<std::byte> back(bytes);
    REQUIRE(f.GetOne(key, back) == GetStatus::kHit);
    CHECK(back == payload);
  }
  CHECK(f.client->GetStats().bytes_received == 1 + 4096 + 4097 + 33 * kMiB);
  CHECK(f.client->GetStats().sessions_opened == 1);
}

TEST_CASE("many chunks on one stream have one outcome each, in order") {
  ClientFixture f;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<PutChunk> chunks;
  for (size_t i = 0; i < 200; ++i) payloads.push_back(Bytes(1000 + i * 37, i));
  for (size_t i = 0; i < 200; ++i) chunks.push_back(Chunk(Key(absl::StrCat(i)), payloads[i]));
  chunks[50].runs[0] = {};                         // no bytes: refused before it is sent
  chunks[60].part = 2;                             // the namespace has parts 0 and 1
  chunks[61].metadata.resize(20'000);              // over 16 KiB
  chunks.push_back(Chunk(Key("7"), payloads[7]));  // a second time
  auto put = f.client->Put(f.ns, chunks, {.checksum = true});
  REQUIRE(put.ok());
  CHECK(put->error.ok());
  REQUIRE(put->chunks.size() == 201);
  for (size_t i = 0; i < 201; ++i) {
    const bool refused = i == 50 || i == 60 || i == 61;
    CHECK(put->chunks[i].status == (refused    ? PutStatus::kRejected
                                    : i == 200 ? PutStatus::kPresent
                                               : PutStatus::kStored));
    CHECK(put->chunks[i].message.empty() == !refused);
  }
  CHECK(f.daemon.kv.put_streams == 1);
  CHECK(f.daemon.kv.chunks() == 197);
}

TEST_CASE("a rejected put says why, and the client's other calls go on") {
  ClientFixture f;
  f.daemon.kv.script.reject_puts = true;
  const std::vector<std::byte> payload = Bytes(10, 1);
  auto put = f.client->Put(f.ns, {Chunk(Key("a"), payload)});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kRejected);
  CHECK(put->chunks[0].message == "REJECT_REASON_NO_SPACE: the fake is full");
  auto found = f.client->Lookup(f.ns, {Key("a")});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 0);
}

TEST_CASE("a lookup tells part by part what is where, and the leading run") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(10, 1);
  std::vector<PutChunk> chunks;
  for (const char* key : {"a", "b", "d"}) {
    for (uint32_t part : {0u, 1u}) chunks.push_back(Chunk(Key(key), payload, part));
  }
  chunks.pop_back();  // part 0 of d only
  REQUIRE(f.client->Put(f.ns, chunks).ok());
  const std::vector<ChunkKey> keys = {Key("a"), Key("b"), Key("c"), Key("d")};
  auto found = f.client->Lookup(f.ns, keys);
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 2);
  CHECK(found->leased_keys == 0);
  CHECK_FALSE(found->lease.alive());
  CHECK(found->in_g2(0, 0));
  CHECK(found->in_g2(1, 1));
  CHECK_FALSE(found->present(2, 0));
  CHECK(found->present(3, 0));
  CHECK_FALSE(found->present(3, 1));
  CHECK_FALSE(found->in_g3(0, 0));
  CHECK(*f.client->Touch(f.ns, keys) == 5);
  CHECK(f.client->Prefetch(f.ns, keys)->ready_chunks == 5);
  CHECK(*f.client->Delete(f.ns, keys) == 5);
  CHECK(f.client->Lookup(f.ns, keys)->leading_keys == 0);
}

TEST_CASE("a lease is read through, shrinks, and is given back when it goes") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(3000, 1);
  std::vector<ChunkKey> keys;
  std::vector<PutChunk> chunks;
  for (size_t i = 0; i < 6; ++i) keys.push_back(Key(absl::StrCat("k", i)));
  for (const ChunkKey& key : keys) chunks.push_back(Chunk(key, payload));
  REQUIRE(f.client->Put(f.ns, chunks).ok());
  {
    auto found = f.client->Lookup(f.ns, keys, {.parts = f.part0, .lease = LeaseMode::kLeadingRun});
    REQUIRE(found.ok());
    CHECK(found->leased_keys == 6);
    CHECK(found->lease.alive());
    std::vector<std::byte> back(2 * 3000);
    std::vector<std::span<std::byte>> to = {std::span(back).subspan(0, 3000),
                                            std::span(back).subspan(3000)};
    auto got = f.client->Get(
        f.ns, absl::MakeSpan(keys).subspan(2, 2),
        {.parts = f.part0, .lease = &found->lease, .first_key = 2, .destinations = to});
    REQUIRE(got.ok());
    CHECK(got->chunks[1].status == GetStatus::kHit);
    CHECK(std::equal(payload.begin(), payload.end(), back.begin() + 3000));
    found->lease.Shrink(3);
    CHECK(Eventually([&] { return f.daemon.kv.releases == 1; }));
    CHECK(found->lease.alive());
    CHECK(f.daemon.kv.leases() == 1);
    Lease moved = std::move(found->lease);
    CHECK(moved.keys() == 3);
  }
  CHECK(Eventually([&] { return f.daemon.kv.leases() == 0; }));
}

TEST_CASE("a get can ask for memory as chunks come, and skips what it is refused") {
  ClientFixture f;
  const std::vector<std::byte> a = Bytes(5 * kMiB, 1), b = Bytes(77, 2);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), a), Chunk(Key("b"), b)}).ok());
  std::map<size_t, std::vector<std::byte>> memory;
  const std::vector<ChunkKey> keys = {Key("a"), Key("none"), Key("b")};
  auto got =
      f.client->Get(f.ns, keys, {.parts = f.part0, .allocate = [&](size_t chunk, uint64_t bytes) {
                                   memory[chunk].resize(chunk == 0 ? 0 : bytes);
                                   return std::span<std::byte>(memory[chunk]);
                                 }});
  REQUIRE(got.ok());
  CHECK(got->chunks[0].status == GetStatus::kTooSmall);
  CHECK(got->chunks[0].payload_bytes == 5 * kMiB);
  CHECK(got->chunks[1].status == GetStatus::kMiss);
  CHECK(got->chunks[2].status == GetStatus::kHit);
  CHECK(memory[2] == b);
  CHECK(memory.count(1) == 0);
}

TEST_CASE("a get has what lies beyond the node, unless it is not to wait for that") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(3'000, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  f.daemon.kv.script.in_g4 = true;
  std::vector<std::byte> to(3'000);
  CHECK(f.GetOne(Key("a"), to) == GetStatus::kHit);
  CHECK(to == payload);
  std::span<std::byte> span(to);
  const std::vector<ChunkKey> keys = {Key("a")};
  const auto here = f.client->Get(f.ns, keys,
                                  {.parts = f.part0,
                                   .remote_wait = std::chrono::microseconds(0),
                                   .destinations = absl::MakeSpan(&span, 1)});
  REQUIRE(here.ok());
  CHECK(here->chunks[0].status == GetStatus::kMiss);
}

TEST_CASE("metadata and hints travel with a put") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(10, 1);
  PutChunk chunk = Chunk(Key("a"), payload);
  chunk.metadata = "token ids";
  chunk.parent_key = Key("parent");
  REQUIRE(f.client->Put(f.ns, {chunk}).ok());
  CHECK(f.daemon.kv.last_parent_key() == Key("parent").view());
  std::vector<std::byte> back(10);
  std::vector<std::span<std::byte>> to = {back};
  auto got =
      f.client->Get(f.ns, {Key("a")}, {.parts = f.part0, .metadata = true, .destinations = to});
  REQUIRE(got.ok());
  CHECK(got->chunks[0].metadata == "token ids");
}

TEST_CASE("bad arguments are named before anything is sent") {
  ClientFixture f;
  CHECK(Client::Connect({.endpoint = ""}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Client::Connect({.endpoint = "unix:///" + std::string(120, 'x')}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.client->OpenNamespace({.tokens_per_chunk = 1}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.client->OpenNamespace({.model = "refused", .tokens_per_chunk = 1}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.client->Lookup(f.ns, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.client->Lookup(Namespace(), {Key("a")}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.client->Get(f.ns, {Key("a")}, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.daemon.kv.lookups == 0);
}

TEST_CASE("a call about more keys than the daemon takes at once is made as several") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(10, 1);
  std::vector<ChunkKey> keys;  // x 2 parts: the daemon takes 32,768 of them
  for (size_t i = 0; i < 40'000; ++i) keys.push_back(Key(absl::StrCat(i)));
  std::vector<PutChunk> chunks;
  for (size_t i = 0; i < 36'000; ++i) {
    if (i >= 10 && i < 32'758) continue;  // those at both sides of the limit
    for (uint32_t part : {0u, 1u}) chunks.push_back(Chunk(keys[i], payload, part));
  }
  REQUIRE(f.client->Put(f.ns, chunks).ok());
  auto found = f.client->Lookup(f.ns, keys, {.lease = LeaseMode::kAllPresent});
  REQUIRE(found.ok());
  CHECK(f.daemon.kv.lookups == 2);
  CHECK(found->leading_keys == 10);
  CHECK(found->leased_keys == 40'000);
  CHECK(f.daemon.kv.leases() == 2);
  CHECK(found->present(35'999, 1));
  CHECK_FALSE(found->present(36'000, 0));
  std::vector<std::byte> back(20 * 2 * 10);
  std::vector<std::span<std::byte>> to;
  for (size_t i = 0; i < 40; ++i) to.push_back(std::span(back).subspan(i * 10, 10));
  auto got = f.client->Get(f.ns, absl::MakeSpan(keys).subspan(32'758, 20),
                           {.lease = &found->lease, .first_key = 32'758, .destinations = to});
  REQUIRE(got.ok());
  CHECK(got->error.ok());
  for (const GetOutcome& outcome : got->chunks) CHECK(outcome.status == GetStatus::kHit);
  CHECK(f.daemon.kv.gets == 2);  // one under each lease
  CHECK(f.client->Release(std::move(found->lease)).ok());
  CHECK(f.daemon.kv.leases() == 0);
  CHECK(*f.client->Touch(f.ns, keys) == chunks.size());
  CHECK(*f.client->Delete(f.ns, keys) == chunks.size());
}

TEST_CASE("server info and the admin calls answer") {
  ClientFixture f;
  auto info = f.client->GetServerInfo();
  REQUIRE(info.ok());
  CHECK(info->version == "fake");
  CHECK(info->state == "serving");
  CHECK(f.client->limits().max_keys_per_call == 65'536);
  AdminClient admin(f.daemon.admin_endpoint(), Deadline(60'000));
  const std::vector<std::byte> payload = Bytes(10, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  CHECK(admin.Status()->g2().chunks() == 1);
  CHECK(admin.Clear(nullptr)->cleared_chunks() == 1);
  CHECK(admin.Drain(Deadline(100))->dirty_chunks_left() == 0);
  f.daemon.Stop();
  CHECK(absl::IsUnavailable(admin.Status().status()));
}

}  // namespace kvkeep::client
