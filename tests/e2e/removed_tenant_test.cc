// A tenant that left the configuration, and its chunks in G3.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

// "b" has a quarter of G2 and a socket of its own.
std::string TenantB(const Site& site) {
  return absl::StrCat("tenants:\n  - {name: b, unix: ", site.path("b.sock"),
                      ", local: ", site.path("b-local.sock"), ", g2_share: 25%}\n");
}

}  // namespace

TEST_CASE("with a tenant gone from the config the daemon serves, scrubs, and takes its space") {
  Site site({.segment_bytes = "16MiB", .devices = {{.capacity = "96MiB"}}});
  site.settings.extra = TenantB(site);
  site.Start();
  const std::vector<TestChunk> bs = Chunks(1, 8, 1 << 20);
  REQUIRE(Engine("unix://" + site.path("b.sock"), {.name = "b"}).PutAll(bs));
  const std::vector<TestChunk> own = Chunks(100, 8, 1 << 20);
  REQUIRE(Engine(site).PutAll(own));
  REQUIRE(site.AwaitClean());
  REQUIRE(site.Stop().exit_status == 0);

  site.settings.extra.clear();
  site.settings.g3 = "  scrub_bytes_per_second: 64MiB\n";
  site.Start();
  // Rounds that ran while the device joined came by a part of the chunks, or none.
  const uint64_t rounds = site.Counter("scrub_rounds");
  CHECK(Eventually([&] { return site.Counter("scrub_rounds") >= rounds + 2; }));
  CHECK(site.Counter("scrubbed_chunks") >= own.size());
  CHECK(site.Counter("scrub_skipped_chunks") >= bs.size());
  {
    Engine engine(site);
    CHECK(engine.Find(bs).any == 0);  // the same words name another namespace
    CHECK(engine.Hits(own) == own.size());
  }

  // Once back, the tenant finds chunks whose space was not needed.
  REQUIRE(site.Stop().exit_status == 0);
  site.settings.extra = TenantB(site);
  site.Start();
  {
    Engine b("unix://" + site.path("b.sock"), {.name = "b"});
    CHECK(b.Hits(bs) == bs.size());
    CHECK(b.wrong_bytes == 0);
  }

  REQUIRE(site.Stop().exit_status == 0);
  site.settings.extra.clear();
  site.Start();
  Engine engine(site);
  const uint64_t share = site.Status().tenants(0).g3_share_bytes();
  const uint64_t chunk_bytes = site.Status().tenants(0).g3_used_bytes() / own.size();
  REQUIRE(share / chunk_bytes > own.size() + bs.size());
  const std::vector<TestChunk> more = Chunks(200, share / chunk_bytes - own.size(), 1 << 20);
  for (size_t i = 0; i < more.size(); i += 4) {
    const auto first = more.begin() + static_cast<ptrdiff_t>(i);
    const auto end = more.begin() + static_cast<ptrdiff_t>(std::min(i + 4, more.size()));
    REQUIRE(engine.PutAll({first, end}));
    REQUIRE(site.AwaitClean());
  }
  CHECK(engine.Find(own).g3 == own.size());  // all the space there is: b's chunks had to go
  CHECK(engine.Find(more).g3 == more.size());
  CHECK(site.Status().tenants(0).g3_evictions() == 0);
  CHECK(site.running());
}

}  // namespace kvkeep::e2e
