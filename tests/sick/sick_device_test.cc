// The daemon on a disk that fails: what is in G2 goes on being served, nothing wrong is, what can
// not be made durable is not called so, the state is shown, the end comes in time, and the disk
// once it is well again is a device as before.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "tests/sick/sick_site.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::sick {
namespace {

using client::GetStatus;

// What a disk may suffer from that stays until it is repaired.
struct Illness {
  const char* name;
  std::function<void(SickDisk&)> strike;
  bool reads_fail;
};

const std::vector<Illness>& Illnesses() {
  static const auto* const all = new std::vector<Illness>{
      {"EIO on every write", [](SickDisk& d) { d.FailWithEio(SICK_WRITES); }, false},
      {"EIO on every flush", [](SickDisk& d) { d.FailWithEio(SICK_FLUSHES); }, false},
      {"EIO on everything", [](SickDisk& d) { d.FailWithEio(SICK_ALL); }, true},
      {"ext4 shut down", [](SickDisk& d) { d.ShutDownFileSystem(); }, true},
      {"remounted read-only", [](SickDisk& d) { d.RemountReadOnly(); }, false},
      {"gone in the middle of I/O", [](SickDisk& d) { d.Vanish(); }, true},
  };
  return *all;
}

// Everything a client does, for a while; nothing may be wrong. Whether a durable put was
// acknowledged is told.
bool Load(SickSite& sick, uint64_t from) {
  Engine engine(sick.site);
  bool durable = false;
  for (uint64_t i = 0; i < 12; ++i) {
    engine.Get(sick.cold[i % sick.cold.size()]);
    engine.Put({from + i, kChunkBytes});
    durable |= PutDurable(engine, {from + 100 + i, kChunkBytes});
    CHECK(engine.Get(sick.warm[i % sick.warm.size()]) == GetStatus::kHit);
  }
  CHECK(engine.wrong_bytes == 0);
  return durable;
}

}  // namespace

TEST_CASE("a disk that fails while it is written and read") {
  if (!CanBeSick()) return;
  for (const Illness& illness : Illnesses()) {
    SECTION(illness.name) {
      SickSite sick;
      sick.Fill();
      illness.strike(sick.disk);
      CHECK_FALSE(Load(sick, 10'000));
      CHECK(sick.AwaitStateOtherThan("ok"));
      INFO(sick.State() << ": " << sick.site.Status().devices(0).message());
      CHECK_FALSE(sick.site.Status().devices(0).message().empty());
      sick.StopInTime();
      sick.Repair();
      sick.site.Start();
      CHECK(sick.State() == "ok");
      Engine engine(sick.site);
      // Those that could not be read were given up, three of them before the device was left alone.
      const size_t lost = illness.reads_fail ? 12 : 0;
      CHECK(Eventually([&] { return engine.Hits(sick.cold) + lost >= kCold; }));
      CHECK(engine.Hits(sick.warm) == sick.warm.size());
      CHECK(PutDurable(engine, {20'000, kChunkBytes}));
      CHECK(engine.wrong_bytes == 0);
      sick.StopInTime();
    }
  }
}

TEST_CASE("a disk that cannot be read for a while: misses, and most of it is there again") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  sick.disk.FailWithEio(SICK_READS);
  {
    Engine engine(sick.site);
    CHECK(engine.Hits(sick.cold) == 0);
    CHECK(engine.Hits(sick.warm) == sick.warm.size());
    // Errors that are far apart, on a slow machine, are not held against it at first.
    CHECK(Eventually([&] { return sick.State() == "offline" || engine.Hits(sick.cold) > 0; }));
    CHECK(engine.wrong_bytes == 0);
  }
  CHECK(sick.State() == "offline");
  sick.StopInTime();
  sick.disk.Heal();
  sick.site.Start();
  Engine engine(sick.site);
  // Three errors until it is left alone, and again each 30 s, when it is tried anew.
  CHECK(engine.Hits(sick.cold) + 12 >= kCold);
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a disk that fails now and then") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  sick.disk.FailWithEio(SICK_READS | SICK_WRITES, 10);
  for (uint64_t round = 0; round < 6; ++round) Load(sick, 10'000 + 1'000 * round);
  CHECK(sick.disk.failed() > 0);
  sick.StopInTime();
  sick.Repair();
  sick.site.Start();
  Engine engine(sick.site);
  engine.Hits(sick.cold);
  CHECK(engine.wrong_bytes == 0);
  CHECK(PutDurable(engine, {50'000, kChunkBytes}));
}

TEST_CASE("every I/O takes 50 ms longer: all goes on, more slowly") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  sick.disk.Delay(SICK_ALL, 50'000);
  CHECK(Load(sick, 10'000));
  CHECK(sick.State() == "ok");
  sick.disk.Heal();
  Engine engine(sick.site);
  CHECK(engine.Hits(sick.cold) == kCold);
  CHECK(engine.wrong_bytes == 0);
  sick.StopInTime();
}

TEST_CASE("the file system is full: G2 goes on, and the device is back when there is room") {
  if (!CanBeSick()) return;
  SickSite sick("320M", "240MiB");
  sick.Fill();
  const std::string filler = sick.disk.dir() + "/filler";
  {
    const UniqueFd fd(open(filler.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (off_t step = 16 << 20, at = 0; step >= 4096;) {  // all that is left, to the last block
      if (fallocate(fd.get(), 0, at, step) == 0) {
        at += step;
      } else {
        step /= 2;
      }
    }
  }
  // Enough records to need a longer log, or another file: small chunks.
  Engine engine(sick.site);
  for (uint64_t i = 0; i < 40 && sick.State() == "ok"; ++i) {
    engine.PutAll(Chunks(100'000 + i * 250, 250, 100));
  }
  CHECK(sick.AwaitStateOtherThan("ok"));
  INFO(sick.site.Status().devices(0).message());
  CHECK(engine.Hits(sick.cold) == kCold);  // it can still be read
  for (const TestChunk& chunk : Chunks(20'100, 4, kChunkBytes)) {
    REQUIRE(engine.PutAll({chunk}));
    CHECK(engine.Get(chunk) == GetStatus::kHit);
  }
  CHECK_FALSE(PutDurable(engine, {20'000, kChunkBytes}));
  CHECK(engine.wrong_bytes == 0);
  sick.StopInTime();
  std::filesystem::remove(filler);
  sick.site.Start();
  Engine after(sick.site);
  CHECK(after.Hits(sick.cold) == kCold);
  CHECK(PutDurable(after, {20'001, kChunkBytes}));
  CHECK(after.wrong_bytes == 0);
  CHECK(sick.State() == "ok");
}

}  // namespace kvkeep::sick
