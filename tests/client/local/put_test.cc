// Puts on the local path: through staging memory, from memory that the daemon knows, and after the
// deadline.
#include <sys/mman.h>

#include <cstring>

#include "tests/client/local/fixture.h"

namespace kvkeep::client {

TEST_CASE("what was put from anywhere is stored, with all its runs and metadata") {
  LocalFixture f;
  const std::vector<std::byte> payload = Bytes(2 * kMiB + 3, 1);
  const std::span<const std::byte> all(payload);
  auto put = f.Put({{.key = Key("a"),
                     .runs = {all.first(100), {}, all.subspan(100, kMiB), all.subspan(100 + kMiB)},
                     .parent_key = Key("p"),
                     .metadata = "tail"}},
                   {.checksum = true});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("a")) == payload);
  CHECK(f.GetOne(Key("a"), {.metadata = true}) == GetStatus::kHit);
  CHECK(f.outcome.metadata == "tail");
  CHECK(f.PutOne(Key("a"), payload) == PutStatus::kPresent);
  CHECK(f.PutOne(Key("empty"), {}) == PutStatus::kRejected);
  CHECK(f.transport->stats().bytes_sent == 2 * payload.size());
}

TEST_CASE("a batch larger than the staging memory goes in several messages") {
  LocalFixture f;  // 4 MiB of staging
  std::vector<std::vector<std::byte>> payloads;
  std::vector<PutChunk> chunks;
  for (uint64_t i = 0; i < 20; ++i) payloads.push_back(Bytes(kMiB, i));
  for (uint64_t i = 0; i < 20; ++i) {
    chunks.push_back({.key = Key(absl::StrCat("k", i)), .runs = {payloads[i]}});
  }
  auto put = f.Put(chunks);
  REQUIRE(put.ok());
  CHECK(put->error.ok());
  for (uint64_t i = 0; i < 20; ++i) {
    CHECK(put->chunks[i].status == PutStatus::kStored);
    CHECK(f.daemon.payload(Key(absl::StrCat("k", i))) == payloads[i]);
  }
  CHECK(f.daemon.requests(local::Kind::kPut) > 3);
  // It is kept from one message to the next. On a busy machine it may rest long enough to be given
  // back in between.
  CHECK(f.daemon.requests(local::Kind::kStaging) < f.daemon.requests(local::Kind::kPut));
}

TEST_CASE("the daemon's limit of chunks of a put splits it too") {
  LocalFixture f;
  f.transport.reset();
  f.daemon.script.max_put_chunks = 3;
  LocalFixture g;
  g.daemon.script.max_put_chunks = 3;
  g.daemon.Stop();
  g.daemon.Start();
  REQUIRE(Eventually([&] { return g.transport->stats().sessions_opened == 2; }));
  const std::vector<std::byte> payload = Bytes(10, 1);
  std::vector<PutChunk> chunks;
  for (int i = 0; i < 8; ++i) chunks.push_back({.key = Key(absl::StrCat(i)), .runs = {payload}});
  auto put = g.Put(chunks);
  REQUIRE(put.ok());
  CHECK(g.daemon.chunks() == 8);
  CHECK(g.daemon.requests(local::Kind::kPut) == 3);
}

TEST_CASE("a chunk larger than the staging memory gets a larger one, up to the daemon's limit") {
  LocalFixture f;
  CHECK(f.PutOne(Key("small"), Bytes(10, 1)) == PutStatus::kStored);
  const std::vector<std::byte> larger = Bytes(6 * kMiB, 2);
  CHECK(f.PutOne(Key("larger"), larger) == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("larger")) == larger);
  CHECK(f.PutOne(Key("too large"), Bytes(9 * kMiB, 3)) == PutStatus::kRejected);
  CHECK(f.message.find(absl::StrCat(8 * kMiB)) != std::string::npos);
  // The memory cannot be replaced while a buffer is out, so the chunk goes another way.
  LocalFixture g;
  auto buffer = g.transport->AllocateStaging(kMiB);
  REQUIRE(buffer.ok());
  CHECK(g.PutOne(Key("larger"), larger) == PutStatus::kStored);
  CHECK(g.daemon.payload(Key("larger")) == larger);
  CHECK(g.daemon.requests(local::Kind::kRegisterMemory) == 1);
}

TEST_CASE("runs in staging buffers and registered memory are not copied") {
  LocalFixture f;
  auto buffer = f.transport->AllocateStaging(2 * kMiB);
  REQUIRE(buffer.ok());
  const std::vector<std::byte> payload = Bytes(2 * kMiB, 1);
  std::copy(payload.begin(), payload.end(), buffer->memory().begin());
  // The rest is taken, so a copy would have no room.
  auto rest = f.transport->AllocateStaging(2 * kMiB);
  REQUIRE(rest.ok());
  CHECK(absl::IsResourceExhausted(f.transport->AllocateStaging(1).status()));
  auto put = f.Put({{.key = Key("staged"), .runs = {buffer->memory()}}});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("staged")) == payload);

  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), kMiB) == 0);
  auto* at =
      static_cast<std::byte*>(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  std::copy(payload.begin(), payload.begin() + kMiB, at);
  {
    auto memory = f.transport->RegisterMemory(fd.get(), {at, kMiB}, {});
    REQUIRE(memory.ok());
    for (int session = 1; session <= 2; ++session) {
      const std::string name = absl::StrCat("registered ", session);
      put = f.Put({{.key = Key(name), .runs = {{at + 4096, 5000}}}});
      REQUIRE(put.ok());
      CHECK(put->chunks[0].status == PutStatus::kStored);
      CHECK(f.daemon.direct_runs == session);
      f.daemon.Stop();
      f.daemon.Start();  // the new session knows it again
      REQUIRE(Eventually([&] {
        return f.transport->stats().sessions_opened == static_cast<uint64_t>(session) + 1;
      }));
    }
  }
  CHECK(Eventually([&] { return f.daemon.requests(local::Kind::kUnregisterMemory) == 1; }));
  munmap(at, kMiB);
}

TEST_CASE("staging memory of a put that ran out of time is not used again before the reply") {
  LocalFixture f;  // 4 MiB of staging
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPut);
  const std::vector<std::byte> payload = Bytes(3 * kMiB, 1);
  const auto began = std::chrono::steady_clock::now();
  CHECK(f.PutOne(Key("a"), payload, {.deadline = kUnanswered}) == PutStatus::kUnfinished);
  CHECK(absl::IsDeadlineExceeded(f.last));
  CHECK(Millis(began) < 9'000);
  CHECK(absl::IsResourceExhausted(f.transport->AllocateStaging(3 * kMiB).status()));
  // No longer than a client waits before it puts through memory of its own.
  CHECK(f.PutOne(Key("b"), payload, {.deadline = Deadline(50)}) == PutStatus::kUnfinished);
  CHECK(f.last.message().find("staging memory") != absl::string_view::npos);
  REQUIRE(Eventually([&] { return f.daemon.requests(local::Kind::kPut) == 1; }));
  f.daemon.Let();
  CHECK(Eventually([&] { return f.transport->AllocateStaging(3 * kMiB).ok(); }));
  CHECK(f.PutOne(Key("c"), payload) == PutStatus::kStored);
}

TEST_CASE("before version 8: a buffer whose put ran out of time says so, and its space waits") {
  LocalFixture f(OfVersion7);
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPut);
  {
    auto buffer = f.transport->AllocateStaging(3 * kMiB);
    REQUIRE(buffer.ok());
    CHECK_FALSE(buffer->in_use());
    auto put = f.Put({{.key = Key("a"), .runs = {buffer->memory()}}}, {.deadline = kUnanswered});
    CHECK(absl::IsDeadlineExceeded(put.status()));
    CHECK(buffer->in_use());
  }
  CHECK(absl::IsResourceExhausted(f.transport->AllocateStaging(3 * kMiB).status()));
  REQUIRE(Eventually([&] { return f.daemon.requests(local::Kind::kPut) == 1; }));
  f.daemon.Let();
  CHECK(Eventually([&] { return f.transport->AllocateStaging(3 * kMiB).ok(); }));
}

TEST_CASE("memory of the caller's is its own again at the put's deadline, daemon or not") {
  LocalFixture f;
  Registered registered(f, kMiB);
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPutUntil);
  {
    auto buffer = f.transport->AllocateStaging(3 * kMiB);
    REQUIRE(buffer.ok());
    auto put = f.Put({{.key = Key("a"), .runs = {buffer->memory()}},
                      {.key = Key("b"), .runs = {registered.memory}}},
                     {.deadline = kUnanswered});
    CHECK(absl::IsDeadlineExceeded(put.status()));
    CHECK(Eventually([&] { return f.daemon.requests(local::Kind::kPutUntil) == 1; }));
    CHECK_FALSE(buffer->in_use());
    CHECK_FALSE(registered.handle.in_use());
  }
  CHECK(f.transport->AllocateStaging(3 * kMiB).ok());
  f.daemon.Let();  // late, and without effect
  CHECK(f.PutOne(Key("c"), Bytes(100, 1)) == PutStatus::kStored);
}

TEST_CASE("what the client copies itself is put as ever: the daemon may store it late") {
  LocalFixture f;
  CHECK(f.PutOne(Key("a"), Bytes(100, 1)) == PutStatus::kStored);
  CHECK(f.daemon.requests(local::Kind::kPut) == 1);
  CHECK(f.daemon.requests(local::Kind::kPutUntil) == 0);
}

TEST_CASE("a daemon with another clock is given no absolute deadline") {
  const int64_t shift = GENERATE(-3'600'000'000'000, 3'600'000'000'000, -50'000'000, 1'000'000'000);
  LocalFixture f([&](auto* script) {
    script->clock_shift_ns = shift;
    script->hold = static_cast<uint16_t>(local::Kind::kPut);
  });
  Registered registered(f, kMiB);
  auto put = f.Put({{.key = Key("a"), .runs = {registered.memory}}}, {.deadline = kUnanswered});
  CHECK(absl::IsDeadlineExceeded(put.status()));
  CHECK(Eventually([&] { return f.daemon.requests(local::Kind::kPut) == 1; }));
  CHECK(registered.handle.in_use());
  f.daemon.Let();
  CHECK(Eventually([&] { return !registered.handle.in_use(); }));
}

TEST_CASE("memory that is reused is read in place only where a put's end is kept") {
  const bool holds = GENERATE(false, true);
  LocalFixture f([&](auto* script) { script->clock_shift_ns = holds ? 0 : 1'000'000'000; });
  Registered registered(f, kMiB, {.reused = true});
  const std::vector<std::byte> payload = Bytes(kMiB, 1);
  std::copy(payload.begin(), payload.end(), registered.memory.begin());
  CHECK(f.PutOne(Key("a"), registered.memory) == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("a")) == payload);
  CHECK(f.daemon.direct_runs == (holds ? 1 : 0));
  CHECK(f.daemon.requests(local::Kind::kPutUntil) == (holds ? 1 : 0));
  // A chunk whose larger part has to be copied is not put in parts then, as parts have no end.
  const std::vector<std::byte> more = Bytes(4 * kMiB, 2);
  auto put = f.Put({{.key = Key("b"), .runs = {registered.memory, more}}});
  REQUIRE(put.ok());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(f.daemon.requests(local::Kind::kPutUntil) == (holds ? 2 : 0));
}

TEST_CASE("memory that is registered twice is in use for both of its owners") {
  LocalFixture f;
  Registered first(f, kMiB);
  const UniqueFd fd(memfd_create("none", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), kMiB) == 0);
  auto second = f.transport->RegisterMemory(fd.get(), first.memory, {.reused = true});
  REQUIRE(second.ok());
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPutUntil);
  f.daemon.script.linger = true;
  std::atomic<bool> done{false};
  f.transport->Put(f.ns, f.spec, {{.key = Key("a"), .runs = {first.memory}}},
                   {.deadline = Deadline(3'000)}, [&](absl::StatusOr<PutResult>) { done = true; });
  REQUIRE(Eventually([&] { return f.daemon.requests(local::Kind::kPutUntil) == 1; }));
  f.daemon.Revoke("the client gives it up");
  REQUIRE(Eventually([&] { return done.load(); }));
  CHECK(first.handle.in_use() == second->in_use());
  CHECK(Eventually([&] { return !first.handle.in_use() && !second->in_use(); }));
  f.daemon.script.linger = false;
}

TEST_CASE("a put of reused memory is not sent when the daemon could not keep its end") {
  LocalFixture f([](auto* script) { script->slow_hello_ms = 300; });  // the clocks differ by this
  Registered registered(f, kMiB, {.reused = true});
  auto put = f.Put({{.key = Key("a"), .runs = {registered.memory}}}, {.deadline = Deadline(200)});
  CHECK(absl::IsDeadlineExceeded(put.status()));
  CHECK_FALSE(registered.handle.in_use());
  CHECK(f.daemon.requests(local::Kind::kPut) + f.daemon.requests(local::Kind::kPutUntil) == 0);
  CHECK(f.PutOne(Key("b"), registered.memory) == PutStatus::kStored);
  CHECK(f.daemon.requests(local::Kind::kPutUntil) == 1);
}

TEST_CASE("memory that is registered while the daemon is away is known once it is back") {
  LocalFixture f;
  f.daemon.Stop();
  REQUIRE(Eventually([&] { return absl::IsUnavailable(f.transport->Arena().status()); }));
  Registered registered(f, kMiB);
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->Arena().ok(); }));
  CHECK(f.PutOne(Key("a"), registered.memory) == PutStatus::kStored);
  CHECK(f.daemon.direct_runs == 1);
}

TEST_CASE("memory of a put that a broken connection cut off is in use until the daemon has left") {
  LocalFixture f(OfVersion7);
  Registered registered(f, kMiB);
  auto buffer = f.transport->AllocateStaging(kMiB);
  REQUIRE(buffer.ok());
  const std::weak_ptr<const ArenaMap> arena = *f.transport->Arena();
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPut);
  f.daemon.script.linger = true;
  const bool late = GENERATE(false, true);  // its deadline passed before
  std::atomic<bool> in_use{false}, done{false};
  f.transport->Put(f.ns, f.spec,
                   {{.key = Key("a"), .runs = {buffer->memory()}},
                    {.key = Key("b"), .runs = {registered.memory}}},
                   {.deadline = Deadline(late ? 1 : 0)}, [&](absl::StatusOr<PutResult> put) {
                     in_use = !put.ok() && buffer->in_use() && registered.handle.in_use();
                     done = true;
                   });
  REQUIRE(Eventually([&] { return f.daemon.requests(local::Kind::kPut) == 1 && done == late; }));
  f.daemon.Revoke("the client gives it up");
  REQUIRE(Eventually([&] { return done.load(); }));
  CHECK(in_use);
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 2; }));
  CHECK(Eventually([&] { return arena.expired(); }));  // it keeps no mapping of that session
  CHECK(buffer->in_use());
  CHECK(registered.handle.in_use());
  f.daemon.script.linger = false;
  CHECK(Eventually([&] { return !buffer->in_use() && !registered.handle.in_use(); }));
}

TEST_CASE("memory of a put that a broken connection cut off is in use until its deadline at most") {
  LocalFixture f;
  Registered registered(f, kMiB);
  f.daemon.script.hold = static_cast<uint16_t>(local::Kind::kPutUntil);
  f.daemon.script.linger = true;
  constexpr int kDeadlineMs = 3'000;
  std::atomic<bool> in_use{false}, done{false};
  const auto began = std::chrono::steady_clock::now();
  f.transport->Put(f.ns, f.spec, {{.key = Key("a"), .runs = {registered.memory}}},
                   {.deadline = Deadline(kDeadlineMs)}, [&](absl::StatusOr<PutResult> put) {
                     in_use = !put.ok() && registered.handle.in_use();
                     done = true;
                   });
  REQUIRE(Eventually([&] { return f.daemon.requests(local::Kind::kPutUntil) == 1; }));
  f.daemon.Revoke("the client gives it up");
  REQUIRE(Eventually([&] { return done.load(); }));
  if (Millis(began) < kDeadlineMs) CHECK(in_use);
  CHECK(Eventually([&] { return !registered.handle.in_use(); }));  // though the daemon lingers
  CHECK(Millis(began) >= kDeadlineMs);
  f.daemon.script.linger = false;
}

TEST_CASE("a put that the daemon refuses, or that it never saw, leaves its memory free") {
  LocalFixture f;
  auto buffer = f.transport->AllocateStaging(kMiB);
  REQUIRE(buffer.ok());
  f.daemon.SetTamper([](local::Kind kind, std::vector<std::byte>* message) {
    if (kind != local::Kind::kPutUntil) return;
    local::ReplyHead head{.code = static_cast<uint32_t>(absl::StatusCode::kInternal)};
    message->resize(sizeof(local::MessageHeader) + sizeof(head));
    std::memcpy(message->data() + sizeof(local::MessageHeader), &head, sizeof(head));
  });
  f.daemon.script.linger = true;
  CHECK(absl::IsInternal(f.Put({{.key = Key("a"), .runs = {buffer->memory()}}}).status()));
  CHECK_FALSE(buffer->in_use());
  f.transport.reset();
  CHECK_FALSE(buffer->in_use());
  f.daemon.script.linger = false;
}

TEST_CASE("the memory of a durable put is free before it is durable") {
  LocalFixture f;
  f.daemon.script.say_copied = true;
  const std::vector<std::byte> payload = Bytes(3 * kMiB, 1);
  std::atomic<bool> done{false};
  f.transport->Put(f.ns, f.spec, {{.key = Key("a"), .runs = {payload}}}, {.durable = true},
                   [&](absl::StatusOr<PutResult> put) {
                     done = put.ok() && put->chunks[0].status == PutStatus::kStored;
                   });
  CHECK(Eventually([&] { return f.daemon.chunks() == 1; }));
  CHECK(Eventually([&] { return f.transport->AllocateStaging(3 * kMiB).ok(); }));
  CHECK_FALSE(done);
  f.daemon.Let();
  CHECK(Eventually([&] { return done.load(); }));
}

}  // namespace kvkeep::client
