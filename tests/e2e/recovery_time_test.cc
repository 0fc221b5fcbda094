// Time that a daemon with many chunks takes from the start of its process to the first answer.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

constexpr size_t kRecoveredChunks = kSanitized ? 10'000 : 100'000;

TEST_CASE("with 100,000 small chunks the daemon serves again in under 2 s") {
  Site site({.g2 = "1GiB", .devices = {{.capacity = "1GiB"}}});
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, kRecoveredChunks, 512);
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    REQUIRE(site.AwaitClean());
    REQUIRE(site.Status().g3().chunks() == chunks.size());
  }
  // The arena costs time by the GiB, which is not recovery's.
  site.settings.g2 = "64MiB";
  milliseconds fastest = milliseconds::max();
  for (int round = 0; round < 3; ++round) {
    site.Kill();
    const milliseconds took = site.Start();
    std::cout << kRecoveredChunks << " chunks: serving again after " << took.count() << " ms\n";
    fastest = std::min(fastest, took);
  }
  // The best of three counts: a busy machine's delay says nothing about the daemon.
  CHECK((kSanitized || fastest < milliseconds(2'000)));
  CHECK(site.Counter("recovered_chunks") == chunks.size());
  Engine engine(site);
  size_t present = 0;
  for (size_t i = 0; i < chunks.size(); i += kRecoveredChunks / 2) {
    present += engine
                   .Find({chunks.begin() + static_cast<ptrdiff_t>(i),
                          chunks.begin() + static_cast<ptrdiff_t>(i + kRecoveredChunks / 2)})
                   .g3;
  }
  CHECK(present == chunks.size());
  std::vector<TestChunk> some;
  for (size_t i = 0; i < chunks.size(); i += 997) some.push_back(chunks[i]);
  CHECK(engine.Hits(some) == some.size());
}

}  // namespace
}  // namespace kvkeep::e2e
