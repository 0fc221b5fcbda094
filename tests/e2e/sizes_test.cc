// Every allowed size comes back exactly, from both tiers; every other size is refused by name.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"
#include "tests/e2e/raw_session.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::PutStatus;

const std::vector<TestChunk> kSizes = {{1, 1},        {2, 4095},     {3, 4096},
                                       {4, 4097},     {5, 1 << 20},  {6, (1 << 20) + 1},
                                       {7, 33 << 20}, {8, 256 << 20}};

// A G2 that holds all of them, and may reserve the largest.
Settings Large() {
  return {.g2 = "640MiB", .devices = {{.capacity = "512MiB"}}, .leased_bytes = "100%"};
}

TEST_CASE("chunks of 1 byte to 256 MiB come back exactly from G2 and, after a restart, from G3") {
  Site site(Large());
  site.Start();
  {
    Engine engine(site);
    for (const TestChunk& chunk : kSizes) {
      INFO(chunk.bytes << " bytes");
      CHECK(engine.Put(chunk).status == PutStatus::kStored);
      CHECK(engine.Get(chunk) == GetStatus::kHit);
    }
    CHECK(site.Status().g2().hits() == kSizes.size());
    CHECK(engine.wrong_bytes == 0);
    REQUIRE(site.AwaitClean());
  }
  site.Kill();
  site.Start();
  Engine engine(site);
  for (const TestChunk& chunk : kSizes) {
    INFO(chunk.bytes << " bytes");
    CHECK(engine.Get(chunk) == GetStatus::kHit);
  }
  CHECK(site.Status().g3().hits() == kSizes.size());
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("what was evicted from G2 comes back exactly from G3") {
  Site site({.g2 = "80MiB", .devices = {{.capacity = "512MiB"}}});
  site.Start();
  Engine engine(site);
  const std::vector<TestChunk> old = {{1, 1}, {2, 4096}, {3, 4097}, {4, 33 << 20}};
  REQUIRE(engine.PutAll(old));
  REQUIRE(site.AwaitClean());
  REQUIRE(engine.PutAll(Chunks(100, 24, 8 << 20)));
  REQUIRE(site.AwaitClean());
  REQUIRE(engine.Find(old).g2 == 0);
  REQUIRE(engine.Find(old).g3 == old.size());
  CHECK(engine.Hits(old) == old.size());
  CHECK(site.Status().g3().hits() == old.size());
}

TEST_CASE("sizes that are not allowed are refused with the limit named") {
  Site site(Large());
  site.Start();
  Engine any(site);
  const client::PutOutcome empty = any.Put({1, 0});
  const std::string why_empty = empty.message + any.error.ToString();
  CHECK(empty.status != PutStatus::kStored);
  INFO(why_empty);
  CHECK(absl::StrContains(why_empty, "1 to 268435456"));

  const client::PutOutcome large = any.Put({2, (256u << 20) + 1});
  const std::string why_large = large.message + any.error.ToString();
  CHECK(large.status != PutStatus::kStored);
  INFO(why_large);
  CHECK(absl::StrContains(why_large, "268435456"));

  Engine fixed(site, {.spec = {.model = "fixed", .tokens_per_chunk = 256, .bytes_per_part = 4096}});
  const client::PutOutcome other = fixed.Put({3, 4097});
  CHECK(other.status == PutStatus::kRejected);
  INFO(other.message);
  CHECK(absl::StrContains(other.message, "bytes_per_part"));
  CHECK(absl::StrContains(other.message, "4096"));
  CHECK(fixed.Put({4, 4096}).status == PutStatus::kStored);

  // The client library refuses some of these by itself; the daemon must not rely on that.
  RawSession raw(site.endpoint());
  for (const uint64_t bytes : {0u, (256u << 20) + 1, 257u << 20}) {
    const v1::PutResult refused = raw.PutZeros(5, bytes);
    INFO(bytes << " bytes: " << refused.message());
    CHECK(refused.reason() == v1::REJECT_REASON_WRONG_SIZE);
    CHECK(absl::StrContains(refused.message(), "1 to 268435456"));
  }

  CHECK(any.Find(Chunks(1, 5, 1)).any == 0);
  CHECK(site.Status().g2().reserved_bytes() == 0);
}

}  // namespace
}  // namespace kvkeep::e2e
