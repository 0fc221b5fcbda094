// Large chunks are copied while the daemon reads them.
#include <cstring>

#include "client/local/test_point.h"
#include "tests/client/local/fixture.h"

namespace kvkeep::client {
namespace {

using local::Kind;

constexpr size_t kLarge = 5 * kMiB + 77;

std::function<void(int part)> on_part;
std::atomic<int> parts{0};

// Calls `hook` after each part, on the copying thread.
class PartHook {
 public:
  explicit PartHook(std::function<void(int part)> hook) {
    on_part = std::move(hook);
    parts = 0;
    test_point_hook = [](const char* name) {
      if (std::strcmp(name, "part-filled") == 0) on_part(++parts);
    };
  }
  ~PartHook() { test_point_hook = nullptr; }
};

}  // namespace

TEST_CASE("a large chunk is put in parts, from wherever its runs lie") {
  LocalFixture f;
  f.daemon.script.default_staging = 8 * kMiB;
  const std::vector<std::byte> payload = Bytes(kLarge, 1);
  const std::span<const std::byte> all(payload);
  REQUIRE(f.PutOne(Key("first"), all.first(10)) == PutStatus::kStored);  // makes the area
  auto buffer = f.transport->AllocateStaging(kMiB);
  REQUIRE(buffer.ok());
  std::copy_n(payload.begin() + kMiB / 2, kMiB, buffer->memory().begin());
  PartHook hook([](int) {});
  auto put = f.Put({{.key = Key("small"), .runs = {all.first(1000)}},
                    {.key = Key("large"),
                     .runs = {all.first(kMiB / 2), buffer->memory(), {}, all.subspan(kMiB * 3 / 2)},
                     .parent_key = Key("small"),
                     .metadata = "tail"},
                    {.key = Key("last"), .runs = {all.first(2000)}}},
                   {.checksum = true});
  REQUIRE(put.ok());
  CHECK(put->error.ok());
  for (const PutOutcome& one : put->chunks) CHECK(one.status == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("large")) == payload);
  CHECK(f.GetOne(Key("large"), {.metadata = true}) == GetStatus::kHit);
  CHECK(f.outcome.metadata == "tail");
  CHECK(f.daemon.requests(Kind::kPutInParts) == 1);
  CHECK(f.daemon.requests(Kind::kPut) == 3);
  CHECK(parts == 6);
  // All staging memory but the buffer's is free again.
  CHECK(Eventually([&] { return f.transport->AllocateStaging(7 * kMiB).ok(); }));
}

TEST_CASE("a put that is answered early keeps its staging memory until nobody writes it") {
  LocalFixture f;
  f.daemon.script.default_staging = 8 * kMiB;
  const std::vector<std::byte> payload = Bytes(kLarge, 1);
  REQUIRE(f.PutOne(Key("a"), payload) == PutStatus::kStored);
  absl::Status meanwhile;
  PartHook hook([&](int part) {
    if (part != 1) return;
    // Another thread's call reads the put's answer first, so it is there already.
    std::thread([&] {
      CHECK(f.Lookup({Key("none")}).ok());
      meanwhile = f.transport->AllocateStaging(4 * kMiB).status();
    }).join();
  });
  CHECK(f.PutOne(Key("a"), payload) == PutStatus::kPresent);
  CHECK(absl::IsResourceExhausted(meanwhile));
  CHECK(f.transport->AllocateStaging(8 * kMiB).ok());
}

TEST_CASE("a connection that breaks while a chunk is copied ends the put, not the client") {
  LocalFixture f;
  f.daemon.script.default_staging = 8 * kMiB;
  bool noticed = false;  // by the client, whose own thread looks at the socket
  PartHook hook([&](int part) {
    if (part != 2) return;
    f.daemon.Stop();
    noticed = Eventually([&] { return !f.transport->why_away().ok(); });
  });
  CHECK(f.PutOne(Key("a"), Bytes(kLarge, 1)) == PutStatus::kUnfinished);
  CHECK(absl::IsUnavailable(f.last));
  CHECK(noticed);
  CHECK(parts == 2);  // the others had no receiver
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 2; }));
  CHECK(f.PutOne(Key("a"), Bytes(kLarge, 1)) == PutStatus::kStored);
}

TEST_CASE("a daemon of version 4 gets large chunks whole") {
  LocalFixture f;
  f.daemon.script.version = 4;
  f.daemon.Stop();
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 2; }));
  const std::vector<std::byte> payload = Bytes(kLarge, 1);
  CHECK(f.PutOne(Key("a"), payload) == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("a")) == payload);
  CHECK(f.daemon.requests(Kind::kPutInParts) == 0);
}

TEST_CASE("without room for its word a large chunk is put whole") {
  LocalFixture f;
  f.daemon.script.default_staging = 4 * kMiB;
  const std::vector<std::byte> payload = Bytes(4 * kMiB, 1);
  CHECK(f.PutOne(Key("a"), payload) == PutStatus::kStored);
  CHECK(f.daemon.payload(Key("a")) == payload);
  CHECK(f.daemon.requests(Kind::kPut) == 1);
}

}  // namespace kvkeep::client
