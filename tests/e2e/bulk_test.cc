// Clients whose gets and puts go by the bulk door: the same answers as by gRPC, and gRPC when the
// door is not there.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

struct BulkSite {
  explicit BulkSite(const std::string& more = "") : site({.g2 = "256MiB"}) {
    site.settings.access = absl::StrCat("  bulk: ", site.path("bulk.sock"), "\n", more);
    site.Start();
  }
  Engine Connect(uint32_t channels = 1) const {
    return Engine(site, {.name = "bulk",
                         .path = client::PathChoice::kGrpc,
                         .channels = channels,
                         .bulk = absl::StrCat("unix://", site.path("bulk.sock"))});
  }
  Site site;
};

TEST_CASE("chunks of all sizes go by the bulk door, whole, and are the same by gRPC") {
  BulkSite bulk;
  Engine engine = bulk.Connect();
  Engine by_grpc(bulk.site, {.path = client::PathChoice::kGrpc});
  std::vector<TestChunk> chunks;
  for (const size_t bytes : {1, 2, 4095, 65'536, 1 << 20, (1 << 20) + 1, 5'000'000, 33'554'432}) {
    chunks.push_back({.number = chunks.size() + 1, .bytes = bytes});
  }
  CHECK(engine.PutAll(chunks));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(by_grpc.Hits(chunks) == chunks.size());
  CHECK(engine.Put({.number = 100, .bytes = 10}, {.durable = true, .checksum = true}).status ==
        client::PutStatus::kStored);
  CHECK(engine.Get({.number = 999, .bytes = 10}) == client::GetStatus::kMiss);
  const client::ClientStats stats = engine.client().GetStats();
  CHECK(stats.bulk_fallbacks == 0);
  CHECK(stats.corrupt_chunks == 0);
  CHECK(bulk.site.Counter("bulk_connections") == 1);
  CHECK(engine.wrong_bytes + by_grpc.wrong_bytes == 0);
}

TEST_CASE("many threads share a client's connections to the bulk door") {
  BulkSite bulk;
  Engine engine = bulk.Connect(3);
  const std::vector<TestChunk> chunks = Chunks(1, 24, 700'001);
  REQUIRE(engine.PutAll(chunks));
  std::atomic<int> hits{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> buffer(700'001);
      for (size_t i = 0; i < 40; ++i) {
        const TestChunk& chunk = chunks[(t * 7 + i) % chunks.size()];
        const std::vector<ChunkKey> keys = {Key(chunk.number)};
        const std::span<std::byte> destination(buffer);
        client::GetOptions options;
        options.destinations = {&destination, 1};
        const auto got = engine.client().Get(engine.ns(), keys, std::move(options));
        const bool hit = got.ok() && got->chunks[0].status == client::GetStatus::kHit;
        if (hit && buffer == Payload(chunk)) ++hits;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(hits == 6 * 40);
  CHECK(engine.client().GetStats().bulk_fallbacks == 0);
  CHECK(bulk.site.Counter("bulk_connections") == 3);
}

TEST_CASE("without a bulk door calls go by gRPC, and by the door once it is there") {
  BulkSite bulk;
  Engine engine = bulk.Connect();
  const TestChunk chunk{.number = 1, .bytes = 100'000};
  REQUIRE(rename(bulk.site.path("bulk.sock").c_str(), bulk.site.path("away").c_str()) == 0);
  CHECK(engine.Put(chunk).status == client::PutStatus::kStored);
  CHECK(engine.Get(chunk) == client::GetStatus::kHit);
  CHECK(engine.client().GetStats().bulk_fallbacks == 2);
  // The daemon makes a socket anew whose file has gone; clients find it.
  CHECK(Eventually([&] {
    const uint64_t before = engine.client().GetStats().bulk_fallbacks;
    return engine.Get(chunk) == client::GetStatus::kHit &&
           engine.client().GetStats().bulk_fallbacks == before;
  }));
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a daemon that is killed and comes back serves the same client by the bulk door") {
  BulkSite bulk;
  Engine engine = bulk.Connect();
  const TestChunk chunk{.number = 1, .bytes = 5'000'000};
  REQUIRE(engine.Put(chunk, {.durable = true}).status == client::PutStatus::kStored);
  bulk.site.Kill();
  CHECK(engine.Get(chunk) != client::GetStatus::kHit);
  bulk.site.Start();
  CHECK(Eventually([&] { return engine.Get(chunk) == client::GetStatus::kHit; }));
  const uint64_t before = engine.client().GetStats().bulk_fallbacks;
  CHECK(Eventually([&] {
    return engine.Get(chunk) == client::GetStatus::kHit &&
           bulk.site.Counter("bulk_connections") == 1;
  }));
  CHECK(engine.client().GetStats().bulk_fallbacks <= before + 1);
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a session of one tenant is of no use at another tenant's bulk door") {
  Site site({.segment_bytes = "16MiB"});
  site.settings.access = absl::StrCat("  bulk: ", site.path("bulk.sock"), "\n");
  site.settings.extra = absl::StrCat("tenants: [{name: a, unix: ", site.path("a.sock"),
                                     ", bulk: ", site.path("a-bulk.sock"), ", g2_share: 25%}]\n");
  site.Start();
  Engine crossed(site, {.path = client::PathChoice::kGrpc,
                        .bulk = absl::StrCat("unix://", site.path("a-bulk.sock"))});
  const TestChunk chunk{.number = 1, .bytes = 1000};
  CHECK(crossed.Put(chunk).status == client::PutStatus::kUnfinished);
  CHECK(site.Counter("foreign_session_calls") > 0);
  Engine right("unix://" + site.path("a.sock"),
               {.path = client::PathChoice::kGrpc,
                .bulk = absl::StrCat("unix://", site.path("a-bulk.sock"))});
  CHECK(right.Put(chunk).status == client::PutStatus::kStored);
  CHECK(right.client().GetStats().bulk_fallbacks == 0);
}

}  // namespace
}  // namespace kvkeep::e2e
