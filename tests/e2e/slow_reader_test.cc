// Clients that ask for much and take nothing, or begin and do not go on: what they hold is bounded,
// ends by itself, and costs no other client.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/e2e/engine.h"
#include "tests/e2e/raw_session.h"
#include "tests/fakes/free_port.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using std::chrono::steady_clock;

constexpr uint64_t kSlowChunkBytes = 4 << 20;
constexpr int kSlowChunks = 12;

Settings StallSettings(const std::string& stall) {
  Settings settings;
  settings.g2 = "128MiB";
  settings.limits = absl::StrCat("  pinned_bytes: 25%\n  stall_timeout: ", stall, "\n");
  return settings;
}

}  // namespace

TEST_CASE("gets that nobody reads hold limits.pinned_bytes at most, and end after the timeout") {
  constexpr uint64_t kSessionBytes = (128 << 20) / 8;  // half of a quarter
  constexpr size_t kGets = 24;
  Site site(StallSettings("3s"));
  site.Start();
  Engine engine(site, {.name = "bystander", .path = client::PathChoice::kGrpc});
  const std::vector<TestChunk> chunks = Chunks(1, kSlowChunks, kSlowChunkBytes);
  REQUIRE(engine.PutAll(chunks));
  REQUIRE(site.AwaitClean());
  // Otherwise the bystander's puts would evict what the others ask for.
  const auto found = engine.client().Lookup(engine.ns(), KeysOf(chunks),
                                            {.lease = client::LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  REQUIRE(found->leased_keys == kSlowChunks);

  RawSession reader(site.endpoint(), "does not read");
  for (size_t i = 0; i < kGets; ++i) {
    std::vector<TestChunk> mine = chunks;
    std::rotate(mine.begin(), mine.begin() + static_cast<int64_t>(i % kSlowChunks), mine.end());
    reader.GetUnread(mine);
  }
  // The first one may be cut off already.
  REQUIRE(Eventually([&] {
    const v1::StatusResponse status = site.Status();
    return status.counters().at("open_get_streams") + status.counters().at("stalled_streams") >=
           kGets;
  }));
  REQUIRE(Eventually([&] { return site.Counter("pinned_bytes") >= kSessionBytes; }));
  uint64_t most = 0, hits = 0, number = 1000;
  // Until the last one is cut off: they take turns, as each gets room when the one before it ends.
  const auto give_up = steady_clock::now() + milliseconds(180'000);
  while (site.Counter("open_get_streams") > 0 && steady_clock::now() < give_up) {
    most = std::max(most, site.Counter("pinned_bytes"));
    hits += engine.Get(chunks[hits % kSlowChunks]) != GetStatus::kUnfinished;
    // There is room for other clients' puts: nothing that could go is kept.
    REQUIRE(engine.PutAll({{++number, kSlowChunkBytes}}));
  }
  WARN("at most " << (most >> 20) << " MiB pinned, " << site.Counter("stalled_streams")
                  << " gets cut, " << hits << " gets of a bystander meanwhile");
  CHECK(most <=
        kSessionBytes + 2 * kSlowChunkBytes);  // one more of the session, one of the bystander
  CHECK(site.Counter("open_get_streams") == 0);
  CHECK(site.Counter("stalled_streams") == kGets);
  CHECK(site.Counter("pin_waits") > 0);
  CHECK(Eventually([&] { return site.Counter("pinned_bytes") == 0; }));
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("slow readers of one tenant hold its part of limits.pinned_bytes; others' gets go on") {
  constexpr uint64_t kPartBytes = (128 << 20) / 8;  // a quarter of a half
  constexpr int kSessions = 6, kGets = 6;
  Settings settings;
  settings.g2 = "128MiB";
  settings.segment_bytes = "16MiB";
  settings.limits = "  pinned_bytes: 50%\n  stall_timeout: 60s\n";
  const int port = FreePort();
  settings.metrics = absl::StrCat("127.0.0.1:", port);
  Site site(settings);
  const auto socket = [&](const std::string& name) { return site.path(name + ".sock"); };
  site.settings.extra =
      absl::StrCat("tenants:\n  - {name: a, g2_share: 25%, unix: ", socket("a"), "}\n",
                   "  - {name: b, g2_share: 25%, unix: ", socket("b"), "}\n");
  site.Start();
  Engine a("unix://" + socket("a"), {.name = "a"}), b("unix://" + socket("b"), {.name = "b"});
  const std::vector<TestChunk> chunks = Chunks(1, 4, kSlowChunkBytes);
  REQUIRE(a.PutAll(chunks));
  REQUIRE(b.PutAll(chunks));

  // Together they could take everything: each session takes half of it.
  std::vector<std::unique_ptr<RawSession>> readers;
  for (int i = 0; i < kSessions; ++i) {
    readers.push_back(std::make_unique<RawSession>("unix://" + socket("a")));
    for (int get = 0; get < kGets; ++get) readers.back()->GetUnread(chunks);
  }
  REQUIRE(Eventually([&] { return site.Counter("open_get_streams") == kSessions * kGets; }));
  REQUIRE(Eventually([&] {
    return site.Counter("pinned_bytes") >= kPartBytes && site.Counter("pin_waits") >= kGets;
  }));
  CHECK(site.Counter("pinned_bytes") <= kPartBytes + kSessions * kSlowChunkBytes);
  for (int i = 0; i < 40; ++i) CHECK(b.Get(chunks[static_cast<size_t>(i) % 4]) == GetStatus::kHit);
  const std::string metrics = HttpGet(port, "/metrics");
  CHECK(absl::StrContains(metrics, "kvkeep_tenant_pin_waits_total{tenant=\"b\"} 0\n"));
  CHECK(site.Counter("stalled_streams") == 0);
  CHECK(b.wrong_bytes == 0);
}

TEST_CASE("a client that takes its time, frame by frame, gets all of it") {
  Site site(StallSettings("20s"));
  site.Start();
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 6, kSlowChunkBytes);
  REQUIRE(engine.PutAll(chunks));
  RawSession reader(site.endpoint());
  reader.GetUnread(chunks);
  uint64_t bytes = 0;
  while (const std::optional<uint64_t> frame = reader.ReadFrame()) {
    bytes += *frame;
    std::this_thread::sleep_for(milliseconds(200));  // it is slow
  }
  CHECK(bytes == chunks.size() * kSlowChunkBytes);
  CHECK(site.Counter("stalled_streams") == 0);
}

TEST_CASE("gets of one session that wait for each other all end well when they are read") {
  Site site(StallSettings("20s"));
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kGrpc});
  const std::vector<TestChunk> chunks = Chunks(1, kSlowChunks, kSlowChunkBytes);
  REQUIRE(engine.PutAll(chunks));
  std::vector<std::unique_ptr<RawSession>> readers;
  std::vector<uint64_t> bytes(6, 0);
  std::vector<std::thread> threads;
  RawSession many(site.endpoint());
  for (int i = 0; i < 20; ++i) many.GetUnread(chunks);  // and holds what the session may hold
  REQUIRE(Eventually([&] { return site.Counter("pin_waits") > 0; }));
  for (uint64_t& sum : bytes) {
    threads.emplace_back([&site, &chunks, &sum] {
      RawSession reader(site.endpoint());
      reader.GetUnread(chunks);
      while (const std::optional<uint64_t> frame = reader.ReadFrame()) sum += *frame;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t sum : bytes) CHECK(sum == kSlowChunks * kSlowChunkBytes);
}

TEST_CASE("a put whose client says no more is ended, and its space is others'") {
  Site site(StallSettings("2s"));
  site.Start();
  RawSession half(site.endpoint());
  half.PutHalf({1, 8 << 20});
  REQUIRE(Eventually([&] {  // it may have been ended already
    return site.Status().g2().reserved_bytes() > 0 || site.Counter("stalled_streams") > 0;
  }));
  const auto began = steady_clock::now();
  REQUIRE(Eventually([&] { return site.Status().g2().reserved_bytes() == 0; }));
  CHECK((kSanitized || steady_clock::now() - began < milliseconds(10'000)));
  const grpc::Status status = half.AwaitPutEnd();
  INFO(status.error_message());
  CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(absl::StrContains(status.error_message(), "limits.stall_timeout"));
  CHECK(site.Counter("stalled_streams") == 1);
  CHECK(site.Counter("sessions_closed") == 0);  // the session still works
}

}  // namespace kvkeep::e2e
