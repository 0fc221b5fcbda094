// G2 in segments on a mount outlives the daemon: its chunks are served again, every byte verified.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>

#include "tests/e2e/arena_mounts.h"
#include "tests/e2e/engine.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;

// Flips a byte of the chunk's payload, in whichever segment it lies.
void FlipByteOf(const TestChunk& chunk, const std::string& arena_dir, size_t segments) {
  constexpr size_t kBlock = 4096;
  const std::vector<std::byte> payload = Payload(chunk);
  for (size_t i = 0; i < segments; ++i) {
    const UniqueFd fd(open(absl::StrCat(arena_dir, "/segment.00", i).c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(fd.valid());
    std::vector<std::byte> there(payload.size());  // whole, as payloads of other chunks overlap it
    for (off_t at = 0; pread(fd.get(), there.data(), kBlock, at) == kBlock; at += kBlock) {
      if (std::memcmp(there.data(), payload.data(), kBlock) != 0) continue;
      if (pread(fd.get(), there.data(), there.size(), at) < 0 || there != payload) continue;
      there[77] ^= std::byte{1};
      REQUIRE(pwrite(fd.get(), &there[77], 1, at + 77) == 1);
      return;
    }
  }
  FAIL("chunk " << chunk.number << " is in no segment");
}

// Kills and starts the site three times, and each time finds all chunks again; `after` runs after
// each start. Returns the time of the fastest start, as a busy machine's delay says nothing about
// the daemon.
template <typename After>
milliseconds FastestRestart(Site& site, const std::vector<TestChunk>& chunks, After after) {
  milliseconds fastest = milliseconds::max();
  for (int round = 0; round < 3; ++round) {
    site.Kill();
    const milliseconds took = site.Start();
    std::cout << chunks.size() << " chunks of G2: serving again after " << took.count() << " ms\n";
    fastest = std::min(fastest, took);
    CHECK(site.Counter("recovered_g2_chunks") == chunks.size());
    CHECK(site.Counter("recovery_dropped_g2_chunks") == 0);
    after();
  }
  return fastest;
}

TEST_CASE("300,000 small chunks in G2 are served again at once, after kill -9", "[times]") {
  ArenaMounts mounts;
  if (!mounts.Make("size=3g,mode=0700,huge=never")) return;
  constexpr size_t kChunks = kSanitized ? 3'000 : 300'000;
  Site site(mounts.With({.g2 = kSanitized ? "64MiB" : "2600MiB", .devices = {}}));
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, kChunks, 512);
  REQUIRE(Engine(site).PutAll(chunks));
  const milliseconds fastest = FastestRestart(site, chunks, [] {});
  // Half a second on two quiet cores.
  CHECK((kSanitized || fastest < milliseconds(2'000)));
}

TEST_CASE("10,000 chunks in 8 segments are served again in under 1 s, after kill -9 and SIGTERM",
          "[times]") {
  ArenaMounts mounts;
  if (!mounts.Make("size=600m,mode=0700,huge=never")) return;
  constexpr size_t kSegments = 8;
  Site site(mounts.With({.g2 = "512MiB", .segment_bytes = "64MiB", .devices = {}}));
  site.Start();
  const uint64_t capacity = site.Status().g2().capacity_bytes();
  std::vector<TestChunk> chunks = Chunks(1, kSanitized ? 1'000 : 10'000, 40'000);
  REQUIRE(Engine(site).PutAll(chunks));

  const milliseconds fastest = FastestRestart(site, chunks, [&] {
    CHECK(Engine(site).Find(chunks).g2 == chunks.size());
    CHECK(site.Status().g2().capacity_bytes() == capacity);
  });
  CHECK((kSanitized || fastest < milliseconds(1'000)));
  CHECK(site.AwaitLog("files of an earlier start reused"));
  {
    Engine engine(site);
    CHECK(engine.Hits(chunks) == chunks.size());
    CHECK(engine.wrong_bytes == 0);
    CHECK(site.Counter("read_g2_hits") == chunks.size());
  }

  site.Kill();
  constexpr ptrdiff_t kBad = 321;
  const TestChunk bad = chunks[kBad];
  FlipByteOf(bad, mounts.writable(), kSegments);
  chunks.erase(chunks.begin() + kBad);
  site.Start();
  {
    Engine engine(site);
    CHECK(engine.Get(bad) != GetStatus::kHit);
    CHECK(Eventually([&] { return engine.Get(bad) == GetStatus::kMiss; }));
    CHECK(engine.Hits(chunks) == chunks.size());
    CHECK(engine.wrong_bytes == 0);
    CHECK(site.Counter("corrupt_chunks") == 1);
  }

  CHECK(site.Stop().exit_status == 0);
  site.Start();
  Engine engine(site);
  CHECK(site.Counter("recovered_g2_chunks") == chunks.size());
  CHECK(engine.Get(bad) == GetStatus::kMiss);
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.PutAll({bad}));
  CHECK(engine.Get(bad) == GetStatus::kHit);
}

TEST_CASE("what a killed daemon had in G2 only reaches G3 after the restart") {
  ArenaMounts mounts;
  if (!mounts.Make("size=80m,mode=0700,huge=never")) return;
  Site site(mounts.With({.g2 = "64MiB", .dirty_budget = "1%"}));
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 20, 2'000'000);
  REQUIRE(Engine(site).PutAll(chunks));
  site.Kill();
  site.Start();
  Engine engine(site);
  CHECK(engine.Find(chunks).g2 == chunks.size());
  CHECK(Eventually([&] { return engine.Find(chunks).g3 == chunks.size(); }));
  CHECK(engine.Hits(chunks) == chunks.size());
}

TEST_CASE("who is no reader any more sees nothing of what comes after the restart that says so") {
  ArenaMounts mounts;
  if (!mounts.Make("size=160m,mode=0700,huge=never")) return;  // mapped memory takes space
  Site site(mounts.With({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {}}));
  const auto tenants = [&site](const std::string& more) {
    site.settings.extra = absl::StrCat("tenants:\n  - {name: reader, unix: ", site.path("r.sock"),
                                       ", g2_share: 25%}\n", more);
  };
  tenants("");
  site.settings.local = true;
  site.settings.access = "  readers: [reader]\n  allowed_uids: [0]\n";
  site.Start();
  const std::vector<TestChunk> before = Chunks(1, 20, 100'000), after = Chunks(101, 100, 400'000);
  REQUIRE(Engine(site).PutAll(before));
  // A reader's mappings from the handshake, kept for its lifetime.
  std::vector<const std::byte*> mapped;
  constexpr size_t kSegment = 16 << 20, kOwners = 3;
  for (size_t i = 0; i < kOwners; ++i) {
    const std::string path = absl::StrCat(site.settings.arena_readonly_dir, "/segment.00", i);
    const UniqueFd fd(open(path.c_str(), O_RDONLY));
    void* const memory = mmap(nullptr, kSegment, PROT_READ, MAP_SHARED, fd.get(), 0);
    REQUIRE(memory != MAP_FAILED);
    mapped.push_back(static_cast<const std::byte*>(memory));
  }
  const auto sees = [&](const TestChunk& chunk) {
    const std::vector<std::byte> payload = Payload(chunk);
    return std::any_of(mapped.begin(), mapped.end(), [&](const std::byte* segment) {
      for (size_t at = 0; at + payload.size() <= kSegment; at += 4096) {
        if (std::memcmp(segment + at, payload.data(), payload.size()) == 0) return true;
      }
      return false;
    });
  };
  CHECK(sees(before[7]));

  bool kept = false;
  SECTION("nothing changed: G2 is kept") { kept = true; }
  SECTION("it is taken out") { site.settings.access = "  allowed_uids: [0]\n"; }
  SECTION("others may connect") {
    site.settings.access = "  readers: [reader]\n  allowed_uids: [0, 64123]\n";
  }
  REQUIRE(site.Stop().exit_status == 0);
  site.Start();
  CHECK(site.Counter("recovered_g2_chunks") == (kept ? before.size() : 0));
  // The log comes by a pipe, in its own time.
  const std::string changed =
      "the store's identity, the tenants' shares, or who may map them, changed";
  CHECK((kept || Eventually([&] { return absl::StrContains(site.Log(), changed); })));
  CHECK(absl::StrContains(site.Log(), changed) != kept);
  REQUIRE(Engine(site).PutAll(after));
  CHECK(sees(after[0]) == kept);
  CHECK(std::any_of(after.begin(), after.end(), sees) == kept);
  CHECK(sees(before[7]));  // the old memory is unchanged
  for (const std::byte* segment : mapped) munmap(const_cast<std::byte*>(segment), kSegment);
}

TEST_CASE("where the store has another identity G2 starts cold, and nothing of it is promised") {
  ArenaMounts mounts;
  if (!mounts.Make("size=80m,mode=0700,huge=never")) return;
  Site site(mounts.With({.g2 = "64MiB", .devices = {}}));
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 20, 100'000);
  REQUIRE(Engine(site).PutAll(chunks));
  REQUIRE(site.Stop().exit_status == 0);
  REQUIRE(std::filesystem::remove(site.path("state/identity")));
  site.Start();
  CHECK(site.Counter("recovered_g2_chunks") == 0);
  CHECK(Eventually([&] { return absl::StrContains(site.Log(), "the store's identity"); }));
  REQUIRE(Engine(site).PutAll(chunks));  // none is answered PRESENT
  CHECK(Engine(site).Hits(chunks) == chunks.size());
  CHECK(site.Counter("corrupt_chunks") == 0);
}

// Starts the site, puts chunks, waits until its device has them too, and kills it.
std::vector<TestChunk> KeepAndKill(Site& site) {
  site.Start();
  std::vector<TestChunk> chunks = Chunks(1, 20, 100'000);
  REQUIRE(Engine(site).PutAll(chunks));
  REQUIRE(site.AwaitKept());
  site.Kill();
  return chunks;
}

TEST_CASE("a device whose lock is free a moment later does not cost G2") {
  ArenaMounts mounts;
  if (!mounts.Make("size=80m,mode=0700,huge=never")) return;
  Site site(mounts.With({.g2 = "64MiB"}));
  const std::vector<TestChunk> chunks = KeepAndKill(site);
  UniqueFd last_io(open((site.path("nvme0") + "/superblock").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(flock(last_io.get(), LOCK_EX) == 0);
  std::thread earlier_process([&last_io] {
    std::this_thread::sleep_for(milliseconds(300));  // as long as its I/O takes
    last_io = UniqueFd();
  });
  site.Start();
  earlier_process.join();
  CHECK(site.Counter("recovered_g2_chunks") == chunks.size());
  CHECK(Engine(site).Find(chunks).g2 == chunks.size());
}

TEST_CASE("with a known device away G2 starts cold, in new files, and says why") {
  ArenaMounts mounts;
  if (!mounts.Make("size=80m,mode=0700,huge=never")) return;
  Site site(mounts.With({.g2 = "64MiB"}));
  const std::vector<TestChunk> chunks = KeepAndKill(site);
  const std::string device = site.path("nvme0");
  REQUIRE(rename(device.c_str(), (device + ".away").c_str()) == 0);
  struct stat before, after;
  const std::string segment = mounts.writable() + "/segment.000";
  REQUIRE(stat(segment.c_str(), &before) == 0);
  site.Start();
  REQUIRE(stat(segment.c_str(), &after) == 0);
  CHECK(before.st_ino != after.st_ino);
  CHECK(Engine(site).Find(chunks).any == 0);
  CHECK(site.AwaitLog("G2 starts cold"));
  site.Kill();
  REQUIRE(rename((device + ".away").c_str(), device.c_str()) == 0);
  site.Start();
  CHECK_FALSE(absl::StrContains(site.Log(), "G2 starts cold"));
  Engine engine(site);
  const uint64_t hits = engine.Hits(chunks);
  INFO(engine.error << "\n" << site.Log());
  CHECK(hits == chunks.size());
}

}  // namespace
}  // namespace kvkeep::e2e
