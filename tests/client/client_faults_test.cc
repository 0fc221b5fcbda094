// The client against a daemon that hangs, lies, forgets, dies and comes back.
#include <catch2/catch.hpp>

#include "client/client.h"
#include "tests/client/fixture.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

int64_t Millis(steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - since).count();
}

}  // namespace

TEST_CASE("a daemon that is away is no error: calls fail fast until it is there") {
  fakes::FakeDaemon daemon;
  daemon.Stop();
  const auto began = steady_clock::now();
  auto client =
      Client::Connect({.endpoint = daemon.endpoint(), .default_deadline = Deadline(60'000)});
  REQUIRE(client.ok());
  CHECK(Millis(began) < 30'000);
  CHECK_FALSE((*client)->connected());
  auto ns = (*client)->OpenNamespace({.model = "m", .tokens_per_chunk = 1});
  REQUIRE(ns.ok());
  const auto asked = steady_clock::now();
  CHECK(absl::IsUnavailable((*client)->Lookup(*ns, {Key("a")}).status()));
  CHECK(Millis(asked) < 30'000);
  CHECK((*client)->GetStats().failed_fast == 1);
  daemon.Start();
  REQUIRE((*client)->WaitConnected(Deadline(60'000)));
  auto found = (*client)->Lookup(*ns, {Key("a")});
  REQUIRE(found.ok());
  CHECK_FALSE(ns->digest().is_zero());
}

TEST_CASE("after a restart the session, the namespaces and the chunks are found again") {
  ClientFixture f;
  auto second = f.client->OpenNamespace({.model = "other", .tokens_per_chunk = 16});
  REQUIRE(second.ok());
  const NamespaceDigest before = f.ns.digest();
  const std::vector<std::byte> payload = Bytes(100, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  for (int restart = 0; restart < 3; ++restart) {
    f.daemon.Stop();
    CHECK(Eventually([&] { return !f.client->connected(); }));
    CHECK(absl::IsUnavailable(f.client->Lookup(f.ns, {Key("a")}).status()));
    f.daemon.Start();
    REQUIRE(f.client->WaitConnected(Deadline(60'000)));
    std::vector<std::byte> back(100);
    CHECK(f.GetOne(Key("a"), back) == GetStatus::kHit);
    CHECK(back == payload);
    CHECK(f.client->Lookup(*second, {Key("a")}).ok());
  }
  CHECK(f.ns.digest() == before);
  CHECK(f.client->GetStats().sessions_opened == 4);
  CHECK(f.daemon.kv.namespaces_opened >= 8);
}

TEST_CASE("a lease of the old incarnation is dead, even when its number is in use again") {
  ClientFixture f;
  const std::vector<std::byte> a = Bytes(100, 1), b = Bytes(100, 2);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), a), Chunk(Key("b"), b)}).ok());
  LookupOptions leading{.parts = f.part0, .lease = LeaseMode::kLeadingRun};
  auto old = f.client->Lookup(f.ns, {Key("a")}, leading);
  REQUIRE(old.ok());
  REQUIRE(old->lease.alive());
  f.daemon.Stop();
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.client->GetStats().sessions_opened == 2; }));
  CHECK_FALSE(old->lease.alive());
  auto fresh = f.client->Lookup(f.ns, {Key("b")}, leading);  // the fake numbers leases from 1 again
  REQUIRE(fresh.ok());
  std::vector<std::byte> back(100);
  CHECK(f.GetOne(Key("a"), back, &old->lease) == GetStatus::kUnfinished);
  CHECK(absl::IsFailedPrecondition(f.last));
  CHECK(back == std::vector<std::byte>(100));
  old->lease.Release();  // must not release the new lease
  CHECK(f.GetOne(Key("b"), back, &fresh->lease) == GetStatus::kHit);
  CHECK(f.daemon.kv.leases() == 1);
}

TEST_CASE("a session that the daemon forgot is replaced") {
  ClientFixture f;
  f.daemon.kv.script.forget_sessions = true;
  CHECK(absl::IsUnavailable(f.client->Lookup(f.ns, {Key("a")}).status()));
  f.daemon.kv.script.forget_sessions = false;
  CHECK(Eventually([&] { return f.client->Lookup(f.ns, {Key("a")}).ok(); }));
  CHECK(f.client->GetStats().sessions_torn_down >= 1);
  // The old session served as well, once the daemon knew it again.
  CHECK(Eventually([&] { return f.daemon.kv.sessions_opened >= 2; }));
}

TEST_CASE("every call ends by its deadline when the daemon hangs") {
  ClientFixture f(Deadline(60'000));
  const std::vector<std::byte> payload = Bytes(40 * kMiB, 1);
  f.daemon.kv.script.hang_lookup = true;
  f.daemon.kv.script.hang_get = true;
  f.daemon.kv.script.hang_put = true;
  auto began = steady_clock::now();
  const auto connected = [&] { return f.client->WaitConnected(Deadline(60'000)); };
  REQUIRE(connected());
  CHECK(absl::IsDeadlineExceeded(
      f.client->Lookup(f.ns, {Key("a")}, {.deadline = Deadline(1'000)}).status()));
  std::vector<std::byte> back(100);
  std::span<std::byte> to(back);
  const ChunkKey key = Key("a");
  REQUIRE(connected());
  const auto got = f.client->Get(
      f.ns, absl::MakeSpan(&key, 1),
      {.parts = f.part0, .deadline = Deadline(1'000), .destinations = absl::MakeSpan(&to, 1)});
  CHECK(absl::IsDeadlineExceeded(got.ok() ? got->error : got.status()));
  REQUIRE(connected());
  CHECK(absl::IsDeadlineExceeded(
      f.client->Put(f.ns, {Chunk(Key("a"), payload)}, {.deadline = Deadline(1'000)}).status()));
  CHECK(Millis(began) >= 2'950);
  CHECK(Millis(began) < 30'000);
  REQUIRE(connected());
  began = steady_clock::now();
  CHECK(absl::IsDeadlineExceeded(
      f.client->Lookup(f.ns, {Key("a")}, {.deadline = Deadline(50)}).status()));
  CHECK(Millis(began) < 30'000);
}

TEST_CASE("a daemon that accepts but never opens the session counts as away") {
  fakes::FakeDaemon daemon;
  daemon.kv.script.hang_session = true;
  const auto began = steady_clock::now();
  auto client = Client::Connect({.endpoint = daemon.endpoint(), .default_deadline = Deadline(200)});
  REQUIRE(client.ok());
  CHECK(Millis(began) < 10'000);
  auto ns = (*client)->OpenNamespace({.model = "m", .tokens_per_chunk = 1});
  CHECK(absl::IsUnavailable((*client)->Lookup(*ns, {Key("a")}).status()));
}

TEST_CASE("the lease of a lookup whose answer came too late is found and given back") {
  ClientFixture f(Deadline(30'000));
  const std::vector<std::byte> payload = Bytes(100, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  f.daemon.kv.script.hang_lookup = true;  // then it grants the lease after all
  auto late = f.client->Lookup(
      f.ns, {Key("a")},
      {.parts = f.part0, .lease = LeaseMode::kLeadingRun, .deadline = Deadline(500)});
  // The fake notices the session and grants the lease.
  CHECK(Eventually([&] { return f.daemon.kv.leases() == 1 || f.daemon.kv.releases >= 1; }));
  f.daemon.kv.script.hang_lookup = false;
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK(Eventually([&] { return f.daemon.kv.releases >= 1 && f.daemon.kv.leases() == 0; }));
  CHECK(f.client->GetStats().leases_reclaimed == 1);
}

TEST_CASE("bytes that do not match their checksums are never a hit") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(9 * kMiB, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  std::vector<std::byte> back(9 * kMiB);
  f.daemon.kv.script.corrupt_gets = 1;
  CHECK(f.GetOne(Key("a"), back) == GetStatus::kCorrupt);
  CHECK(f.client->GetStats().corrupt_chunks == 1);
  f.daemon.kv.script.corrupt_midway = 1;
  CHECK(f.GetOne(Key("a"), back) == GetStatus::kCorrupt);
  CHECK(f.client->GetStats().corrupt_chunks == 1);  // the daemon found that one
  CHECK(f.GetOne(Key("a"), back) == GetStatus::kHit);
  CHECK(back == payload);
}

TEST_CASE("a get that breaks off keeps its finished chunks") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(100, 1);
  std::vector<PutChunk> chunks;
  std::vector<ChunkKey> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(Key(absl::StrCat("k", i)));
  for (const ChunkKey& key : keys) chunks.push_back(Chunk(key, payload));
  REQUIRE(f.client->Put(f.ns, chunks).ok());
  std::vector<std::vector<std::byte>> back(5, std::vector<std::byte>(100));
  const std::vector<std::span<std::byte>> to(back.begin(), back.end());
  f.daemon.kv.script.end_get_after = 3;
  for (int code : {0, static_cast<int>(grpc::StatusCode::INTERNAL)}) {
    f.daemon.kv.script.end_get_code = code;
    auto got = f.client->Get(f.ns, keys, {.parts = f.part0, .destinations = to});
    REQUIRE(got.ok());
    CHECK(absl::IsInternal(got->error));
    for (size_t i = 0; i < 5; ++i) {
      CHECK(got->chunks[i].status == (i < 3 ? GetStatus::kHit : GetStatus::kUnfinished));
    }
  }
}

TEST_CASE("a daemon that breaks the protocol fails the call, not the client") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(100, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  f.daemon.kv.script.skip_part_of_frame = true;
  std::vector<std::byte> back(100);
  CHECK(f.GetOne(Key("a"), back) == GetStatus::kUnfinished);
  CHECK(absl::IsInternal(f.last));
  f.daemon.kv.script.skip_part_of_frame = false;
  CHECK(f.GetOne(Key("a"), back) == GetStatus::kHit);
}

TEST_CASE("a daemon that dies during puts and gets leaves no call hanging and no memory in use") {
  ClientFixture f;
  const std::vector<std::byte> payload = Bytes(8 * kMiB, 1);
  REQUIRE(f.client->Put(f.ns, {Chunk(Key("a"), payload)}).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        ++calls;
        std::vector<std::byte> mine = Bytes(8 * kMiB, 1);
        if (t == 0) {
          (void)f.client->Put(f.ns, {Chunk(Key(absl::StrCat("x", i % 5)), mine)});
          std::fill(mine.begin(), mine.end(), std::byte{0});  // ours again: asan reports readers
          continue;
        }
        std::vector<std::byte> back(8 * kMiB);
        std::span<std::byte> to(back);
        const ChunkKey key = Key("a");
        auto got = f.client->Get(f.ns, absl::MakeSpan(&key, 1),
                                 {.parts = f.part0, .destinations = absl::MakeSpan(&to, 1)});
        if (got.ok() && got->chunks[0].status == GetStatus::kHit && back != payload) ++wrong;
      }
    });
  }
  for (int i = 0; i < 4; ++i) {
    const int before = calls;
    for (int k = 0; k < 200 && (k < 3 || calls == before); ++k) {
      // Some calls should be under way at each death: at least one has begun since the last.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    f.daemon.Stop();
    f.daemon.Start();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(calls > 3);
  CHECK(f.client->WaitConnected(Deadline(60'000)));
}

TEST_CASE("destroying the client ends calls in flight and runs their callbacks first") {
  auto f = std::make_unique<ClientFixture>(Deadline(60'000));
  f->daemon.kv.script.hang_lookup = true;
  f->daemon.kv.script.hang_put = true;
  std::atomic<int> done{0};
  const std::vector<std::byte> payload = Bytes(20 * kMiB, 1);
  const std::vector<ChunkKey> keys = {Key("a")};
  for (int i = 0; i < 3; ++i) {
    f->client->Lookup(f->ns, keys, {}, [&](absl::StatusOr<LookupResult> r) { done += !r.ok(); });
    f->client->Put(f->ns, {Chunk(Key("a"), payload)}, {},
                   [&](absl::StatusOr<PutResult> r) { done += !r.ok(); });
  }
  // The calls should have reached the daemon, where they hang.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto began = steady_clock::now();
  f->client.reset();
  CHECK(done == 6);
  CHECK(Millis(began) < 30'000);
}

}  // namespace kvkeep::client
