// A start that needs another arena beside engines that map the old one, which fills the mount.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/e2e/arena_mounts.h"
#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

// An arena that fills its mount.
Settings Filling(const ArenaMounts& mounts) {
  return mounts.With({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {}, .local = true});
}
constexpr char kMount[] = "size=66m,mode=0700,huge=never";

}  // namespace

TEST_CASE("engines let go of an arena that is no more, and the next one has all of its memory") {
  ArenaMounts mounts;
  if (!mounts.Make(kMount)) return;
  Site site(Filling(mounts));
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kLocal});
  const std::vector<TestChunk> chunks = Chunks(1, 20, 400'000);
  REQUIRE(engine.PutAll(chunks));
  CHECK(engine.Hits(chunks) == chunks.size());
  site.Kill();
  site.settings.segment_bytes = "8MiB";
  site.Start();  // while the engine lives
  CHECK(absl::StrContains(site.Log(), "G2 waits for memory"));
  CHECK(site.Status().g2().capacity_bytes() > 60 << 20);
  REQUIRE(Eventually([&] { return engine.PutAll(chunks); }));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a lease of a session that is over keeps its memory, and the start waits for it") {
  ArenaMounts mounts;
  if (!mounts.Make(kMount)) return;
  Site site(Filling(mounts));
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kLocal});
  const TestChunk chunk{1, 400'000};
  REQUIRE(engine.PutAll({chunk}));
  auto held = engine.client().Acquire(engine.ns(), KeysOf({chunk}));
  REQUIRE(held.ok());
  REQUIRE(held->leading_keys == 1);
  site.Kill();
  site.settings.segment_bytes = "8MiB";
  std::thread lets_go([&held] {
    std::this_thread::sleep_for(std::chrono::seconds(8));  // longer than an idle client keeps it
    held = absl::CancelledError();
  });
  const milliseconds took = site.Start();
  lets_go.join();
  CHECK(took > milliseconds(7'000));
  CHECK(Eventually([&] { return engine.PutAll({chunk}); }));
}

}  // namespace kvkeep::e2e
