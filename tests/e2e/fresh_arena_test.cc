// A start that needs another arena while engines map the old one, which fills the mount.
#include <absl/strings/match.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/e2e/arena_mounts.h"
#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

constexpr uint64_t kG2 = 64 << 20;

// An arena that fills its mount.
Settings Filling(const ArenaMounts& mounts) {
  return mounts.With({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {}, .local = true});
}
constexpr char kMount[] = "size=66847k,mode=0700,huge=never";  // 1.02 times the arena

bool HasAll(Site& site) {
  const v1::TierStatus g2 = site.Status().g2();
  return g2.to_come_bytes() == 0 && g2.capacity_bytes() == kG2;
}

// The arena has a part of it: more than none, and the missing part is reported.
void CheckHasPart(Site& site) {
  const v1::TierStatus g2 = site.Status().g2();
  CHECK(g2.capacity_bytes() >= kG2 / 64);
  CHECK(g2.capacity_bytes() < kG2 / 32);
  CHECK(g2.capacity_bytes() + g2.to_come_bytes() == kG2);
  CHECK(absl::StrContains(site.Log(), "G2 has a part of its memory"));
}

// A lease on the chunk, and so on all of the arena that is mapped.
absl::StatusOr<client::Acquired> PutAndHold(Engine& engine, const TestChunk& chunk) {
  REQUIRE(engine.PutAll({chunk}));
  auto held = engine.client().Acquire(engine.ns(), KeysOf({chunk}));
  REQUIRE(held.ok());
  REQUIRE(held->leading_keys == 1);
  return held;
}

// The lease keeps its memory in place, also long after its session.
bool HoldsBytes(const client::Acquired& held, const TestChunk& chunk) {
  std::vector<std::byte> bytes;
  for (const std::span<const std::byte> run : held.chunks.at(0).runs) {
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  return bytes == Payload(chunk);
}

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
  CHECK_FALSE(absl::StrContains(site.Log(), "G2 waits for memory"));
  CHECK(site.AwaitLog("capacity or segment size changed"));
  CHECK(Eventually([&] { return HasAll(site); }, milliseconds(20'000)));
  REQUIRE(Eventually([&] { return engine.PutAll(chunks); }));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("beside a lease on all of the former arena it serves, and has the rest when that ends") {
  ArenaMounts mounts;
  if (!mounts.Make(kMount)) return;
  Settings settings = Filling(mounts);
  settings.devices = {{}};
  Site site(settings);
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kLocal});
  const TestChunk chunk{1, 400'000};
  auto held = PutAndHold(engine, chunk);
  REQUIRE(site.AwaitClean());
  site.Kill();
  // A dead process may still write there, so the arena is made anew.
  std::string block = ReadFile(site.path("nvme0/superblock"));
  block[100] = static_cast<char>(block[100] + 1);
  WriteFile(site.path("nvme0/superblock"), block);
  site.Start();
  CHECK_FALSE(absl::StrContains(site.Log(), "G2 waits for memory"));
  CheckHasPart(site);
  const std::vector<TestChunk> small = Chunks(100, 5, 60'000);
  REQUIRE(Eventually([&] { return engine.PutAll(small); }));
  CHECK(engine.Hits(small) == small.size());
  CHECK_FALSE(held->valid());
  CHECK(HoldsBytes(*held, chunk));
  CheckHasPart(site);

  held = absl::CancelledError();
  CHECK(Eventually([&] { return HasAll(site); }, milliseconds(20'000)));
  CHECK(site.AwaitLog("G2 has all of its memory"));
  CHECK(engine.Hits(small) == small.size());
  const std::vector<TestChunk> many = Chunks(200, 100, 400'000);
  REQUIRE(engine.PutAll(many));
  CHECK(engine.Hits(many) == many.size());
  CHECK(engine.Hits(small) == small.size());
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("an arena that has a part of its memory is warm after a restart, and takes the rest") {
  ArenaMounts mounts;
  if (!mounts.Make(kMount)) return;
  Site site(Filling(mounts));
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kLocal});
  const TestChunk chunk{1, 400'000};
  auto held = PutAndHold(engine, chunk);
  site.Kill();
  site.settings.segment_bytes = "8MiB";
  site.Start();
  const std::vector<TestChunk> small = Chunks(100, 5, 60'000);
  REQUIRE(Eventually([&] { return engine.PutAll(small); }));
  site.Kill();
  site.Start();
  CheckHasPart(site);
  CHECK(Eventually([&] { return engine.Hits(small) == small.size(); }));
  held = absl::CancelledError();
  CHECK(Eventually([&] { return HasAll(site); }, milliseconds(20'000)));
  CHECK(engine.Hits(small) == small.size());
  site.Kill();
  site.Start();
  CHECK(HasAll(site));
  CHECK(Eventually([&] { return engine.Hits(small) == small.size(); }));
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("where there is too little for every segment the start waits until a lease has ended") {
  ArenaMounts mounts;
  if (!mounts.Make("size=65900k,mode=0700,huge=never")) return;
  Site site(Filling(mounts));
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kLocal});
  const TestChunk chunk{1, 400'000};
  auto held = PutAndHold(engine, chunk);
  site.Kill();
  site.settings.segment_bytes = "8MiB";
  std::atomic<bool> lets_go_now{false};
  std::thread lets_go([&] {
    std::this_thread::sleep_for(std::chrono::seconds(8));  // longer than an idle client keeps it
    lets_go_now = true;
    held = absl::CancelledError();
  });
  site.Start();
  CHECK(lets_go_now);
  lets_go.join();
  CHECK(absl::StrContains(site.Log(), "G2 waits for memory"));
  CHECK(Eventually([&] { return engine.PutAll({chunk}); }));
}

}  // namespace kvkeep::e2e
