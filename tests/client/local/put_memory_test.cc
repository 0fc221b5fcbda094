// Staging memory as the daemon's sessions share it: little at first, more when puts wait, given
// back when idle; and puts without any.
#include <thread>

#include "tests/client/local/fixture.h"

namespace kvkeep::client {
namespace {

using local::Kind;

// Puts `count` chunks of 1 MiB in one call. Returns how many were stored.
size_t PutMany(LocalFixture& f, size_t count, const std::string& name) {
  const std::vector<std::byte> payload = Bytes(kMiB, 1);
  std::vector<PutChunk> chunks;
  for (size_t i = 0; i < count; ++i) {
    chunks.push_back({.key = Key(absl::StrCat(name, i)), .runs = {payload}});
  }
  const auto put = f.Put(std::move(chunks));
  size_t stored = 0;
  if (!put.ok()) return 0;
  for (const PutOutcome& outcome : put->chunks) stored += outcome.status == PutStatus::kStored;
  return stored;
}

// A transport that gives staging memory back when it was idle that long.
struct IdleFixture : LocalFixture {
  explicit IdleFixture(Deadline idle) {
    transport.reset(new LocalTransport({.socket = daemon.socket(),
                                        .client_name = "idle",
                                        .default_deadline = Deadline(10'000),
                                        .staging_idle = idle}));
    REQUIRE(transport->WaitFirstAttempt(Deadline(10'000)).ok());
    ns = *transport->OpenNamespace(spec, Deadline(0));
  }
};
struct ImpatientFixture : IdleFixture {
  ImpatientFixture() : IdleFixture(Deadline(20)) {}
};

}  // namespace

TEST_CASE("where the daemon has no staging memory, puts go through memory of the client's own") {
  LocalFixture f;
  f.daemon.script.no_staging = true;
  const auto began = std::chrono::steady_clock::now();
  CHECK(PutMany(f, 10, "a") == 10);
  CHECK(f.daemon.payload(Key("a9")) == Bytes(kMiB, 1));
  CHECK(f.daemon.direct_runs > 0);
  CHECK(f.transport->own_staging_areas() == 1);
  // A large chunk works too; it cannot go in parts.
  const std::vector<std::byte> large = Bytes(7 * kMiB, 2);
  CHECK(f.PutOne(Key("large"), large) == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("large")) == large);
  CHECK(f.daemon.requests(Kind::kPutInParts) == 0);
  // Buffers never come from it, as their owner would not know that they save nothing.
  CHECK(absl::IsResourceExhausted(f.transport->AllocateStaging(kMiB).status()));
  // The client asks the daemon again soon, but not with each put.
  const int asked = f.daemon.requests(Kind::kStaging);
  CHECK(asked <= 3 + Millis(began) / 250);
  f.daemon.script.no_staging = false;
  CHECK(Eventually([&] {
    const int direct = f.daemon.direct_runs;
    return f.PutOne(Key("again"), Bytes(10, 1)) != PutStatus::kRejected &&
           f.daemon.direct_runs == direct;
  }));
}

TEST_CASE("where buffers take all staging memory, a put waits a moment and goes another way") {
  LocalFixture f;  // 4 MiB of staging
  auto buffer = f.transport->AllocateStaging(4 * kMiB);
  REQUIRE(buffer.ok());
  const auto began = std::chrono::steady_clock::now();
  CHECK(f.PutOne(Key("a"), Bytes(kMiB, 1)) == PutStatus::kStored);
  CHECK(Millis(began) < 5'000);  // far from its deadline
  CHECK(f.transport->own_staging_areas() == 1);
}

TEST_CASE("one put takes from a buffer, from staging memory and from the client's own") {
  LocalFixture f;  // 4 MiB of staging
  auto buffer = f.transport->AllocateStaging(3 * kMiB);
  REQUIRE(buffer.ok());
  const std::vector<std::byte> payload = Bytes(2 * kMiB, 1);
  const std::span<const std::byte> all(payload);
  std::copy(payload.begin(), payload.end(), buffer->memory().begin());
  for (int i = 0; i < 3; ++i) {  // the first one's memory is free again
    const std::string name = absl::StrCat("mixed ", i);
    auto put = f.Put(
        {{.key = Key(name + "a"), .runs = {all.first(kMiB / 2)}},
         {.key = Key(name + "b"), .runs = {all, buffer->memory().first(kMiB)}},
         {.key = Key(name + "c"), .runs = {buffer->memory().first(2 * kMiB)}}});
    REQUIRE(put.ok());
    for (const PutOutcome& outcome : put->chunks) CHECK(outcome.status == PutStatus::kStored);
    CHECK(f.daemon.payload(Key(name + "c")) == payload);
    CHECK(f.daemon.payload(Key(name + "b")).size() == 3 * kMiB);
  }
  CHECK_FALSE(buffer->in_use());
}

TEST_CASE("a daemon that takes no memory of the client's and has none rejects, and says why") {
  LocalFixture f;
  f.daemon.script.no_staging = true;
  f.daemon.SetTamper([](Kind kind, std::vector<std::byte>* message) {
    if (kind != Kind::kRegisterMemory) return;
    local::ReplyHead head{.code = static_cast<uint32_t>(absl::StatusCode::kResourceExhausted)};
    message->resize(sizeof(local::MessageHeader) + sizeof(head));
    std::memcpy(message->data() + sizeof(local::MessageHeader), &head, sizeof(head));
  });
  CHECK(f.PutOne(Key("a"), Bytes(kMiB, 1)) == PutStatus::kRejected);
  CHECK(f.message.find("limits.staging") != std::string::npos);
}

TEST_CASE("staging memory grows once puts wait for room in it") {
  IdleFixture f(Deadline(600'000));
  f.daemon.script.default_staging = 2 * kMiB;
  CHECK(PutMany(f, 1, "a") == 1);
  CHECK(f.daemon.requests(Kind::kStaging) == 1);
  for (int i = 0; i < 20 && f.daemon.requests(Kind::kStaging) < 2; ++i) {
    // Puts that hold the area too long delay it for a second.
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(PutMany(f, 12, absl::StrCat("b", i, " ")) == 12);
  }
  CHECK(f.daemon.requests(Kind::kStaging) == 2);
  CHECK(f.daemon.staging_asked == 4 * kMiB);  // half of what a session may have
  CHECK(PutMany(f, 12, "c") == 12);
  CHECK(f.daemon.requests(Kind::kStaging) == 2);
  CHECK(f.transport->own_staging_areas() == 0);
}

TEST_CASE("staging memory grows though several threads put without a pause") {
  LocalFixture f;
  f.daemon.script.default_staging = 2 * kMiB;
  std::vector<std::thread> threads;
  std::atomic<size_t> good{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::vector<std::byte> payload = Bytes(kMiB, 1);
      for (int i = 0; i < 12; ++i) {
        std::atomic<int> status{-1};
        f.transport->Put(f.ns, f.spec,
                         {{.key = Key(absl::StrCat(thread, ":", i % 8)), .runs = {payload}}}, {},
                         [&](absl::StatusOr<PutResult> put) {
                           status = put.ok() ? static_cast<int>(put->chunks[0].status) : 99;
                         });
        if (!Eventually([&] { return status >= 0; })) break;
        good += status == static_cast<int>(PutStatus::kStored) ||
                status == static_cast<int>(PutStatus::kPresent);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 48);
}

TEST_CASE("staging memory that no put uses is given back, and had again") {
  ImpatientFixture f;
  CHECK(PutMany(f, 3, "a") == 3);
  CHECK(Eventually([&] { return f.daemon.staging_asked == local::kNoStaging; }));
  CHECK(PutMany(f, 3, "b") == 3);
  {
    auto buffer = f.transport->AllocateStaging(kMiB);  // it stays while a buffer is out
    REQUIRE(buffer.ok());
    CHECK(f.PutOne(Key("c"), Bytes(kMiB, 1)) == PutStatus::kStored);
    f.daemon.staging_asked = 1;
    CHECK_FALSE(Eventually([&] { return f.daemon.staging_asked != 1; }, 100));
  }
  CHECK(Eventually([&] { return f.daemon.staging_asked == local::kNoStaging; }));
}

TEST_CASE("memory of the client's own that no put uses is given back, too") {
  ImpatientFixture f;
  f.daemon.script.no_staging = true;
  CHECK(PutMany(f, 3, "a") == 3);
  CHECK(Eventually([&] { return f.daemon.requests(Kind::kUnregisterMemory) >= 1; }));
  CHECK(PutMany(f, 3, "b") == 3);
}

TEST_CASE("a daemon of version 5 is asked neither for more nor to take it back") {
  ImpatientFixture f;
  f.daemon.script.default_staging = 2 * kMiB;
  f.daemon.script.version = 5;
  f.daemon.Stop();
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 2; }));
  CHECK(PutMany(f, 12, "a") == 12);
  CHECK_FALSE(Eventually([&] { return f.daemon.requests(Kind::kStaging) != 1; }, 100));
}

}  // namespace kvkeep::client
