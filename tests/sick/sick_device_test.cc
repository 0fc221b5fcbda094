// The daemon on a disk that fails: G2 goes on being served, no bytes are wrong, nothing is called
// durable that is not, the state is shown, the end comes in time, and once the disk is healthy
// again it is a device as before.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "tests/sick/sick_site.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::sick {
namespace {

using client::GetStatus;

// An illness of a disk that stays until it is repaired.
struct Illness {
  const char* name;
  std::function<void(SickDisk&)> strike;
};

const std::vector<Illness>& Illnesses() {
  static const auto* const all = new std::vector<Illness>{
      {"EIO on every write", [](SickDisk& d) { d.FailWithEio(SICK_WRITES); }},
      {"EIO on every flush", [](SickDisk& d) { d.FailWithEio(SICK_FLUSHES); }},
      {"EIO on everything", [](SickDisk& d) { d.FailWithEio(SICK_ALL); }},
      {"ext4 shut down", [](SickDisk& d) { d.ShutDownFileSystem(); }},
      {"remounted read-only", [](SickDisk& d) { d.RemountReadOnly(); }},
      {"gone in the middle of I/O", [](SickDisk& d) { d.Vanish(); }},
  };
  return *all;
}

// Does everything that a client does, for a while; nothing may be wrong. Reports whether a durable
// put was acknowledged.
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

// Returns the states of the device that Prometheus shows: one, equal to the status.
std::string StateInMetrics(const SickSite& sick) {
  const std::string& address = sick.site.settings.metrics;
  const std::string page =
      e2e::HttpGet(std::stoi(address.substr(address.find(':') + 1)), "/metrics");
  std::vector<std::string> states;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::StartsWith(line, "kvkeep_device_state_info{") || !absl::EndsWith(line, " 1")) {
      continue;
    }
    const absl::string_view state = line.substr(line.find("state=\"") + 7);
    states.emplace_back(state.substr(0, state.find('"')));
  }
  return absl::StrJoin(states, ", ");
}

// A device may be tried again in between, and be called degraded then.
bool MetricsAgree(const SickSite& sick) {
  return Eventually([&] { return StateInMetrics(sick) == sick.State(); });
}

struct Hits {
  uint64_t hits = 0, gets = 0;
  std::chrono::microseconds slowest{0};
};

constexpr std::chrono::microseconds kThink{500};

// Gets chunks of G2, one after the other, until told to end.
Hits GetWarm(SickSite& sick, const std::function<bool()>& on) {
  Engine engine(sick.site);
  Hits all;
  while (on()) {
    const auto begin = std::chrono::steady_clock::now();
    all.hits += engine.Get(sick.warm[all.gets++ % sick.warm.size()]) == GetStatus::kHit;
    all.slowest = std::max(all.slowest, std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - begin));
    std::this_thread::sleep_for(kThink);  // leaves the machine to others, too
  }
  CHECK(engine.wrong_bytes == 0);
  return all;
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
      CHECK(MetricsAgree(sick));
      CHECK(StateInMetrics(sick) != "ok");
      sick.StopInTime();
      sick.Repair();
      sick.site.Start();
      CHECK(sick.State() == "ok");
      CHECK(StateInMetrics(sick) == "ok");
      Engine engine(sick.site);
      CHECK(Eventually([&] { return engine.Hits(sick.cold) == kCold; }));
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
    // Errors that are far apart, on a slow machine, have no consequence at first.
    CHECK(Eventually([&] { return sick.State() == "offline" || engine.Hits(sick.cold) > 0; }));
    CHECK(engine.wrong_bytes == 0);
  }
  // It may be tried again in between.
  CHECK(Eventually([&] {
    return sick.State() == "offline" && StateInMetrics(sick) == "offline";
  }));
  sick.StopInTime();
  sick.disk.Heal();
  sick.site.Start();
  Engine engine(sick.site);
  // Three errors take it offline, and again each 30 s, when it is tried anew.
  const size_t hits = engine.Hits(sick.cold);
  INFO(sick.site.Status().devices(0).ShortDebugString() << "; " << engine.error);
  CHECK(hits + 12 >= kCold);
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

TEST_CASE("every I/O takes seconds longer: G2 is not slowed, and what waits comes in the end") {
  if (!CanBeSick()) return;
  const auto delay = GENERATE(std::chrono::milliseconds(1'000), std::chrono::milliseconds(1'500),
                              std::chrono::milliseconds(6'000));
  if (e2e::kSanitized && delay.count() == 1'500) return;  // the same code as the shorter one
  INFO(delay.count() << " ms");
  SickSite sick;
  sick.Fill();
  sick.disk.Delay(SICK_ALL, static_cast<uint32_t>(delay.count() * 1000));
  // It is silent for 5 s, or it goes on.
  const bool silent = delay > std::chrono::milliseconds(5'000);
  std::string put, got;
  std::thread cold([&] {
    Engine engine(sick.site, {.deadline = client::Deadline(90'000)});
    got = engine.Get(sick.cold[0]) == GetStatus::kHit ? "hit" : "no hit";
    if (engine.wrong_bytes > 0) got = "wrong";
  });
  std::thread durable([&] {
    Engine engine(sick.site, {.deadline = client::Deadline(90'000)});
    put = PutDurable(engine, {10'000, kChunkBytes}) ? "durable" : "not";
  });
  const auto end = std::chrono::steady_clock::now() +
                   std::max(2 * delay, delay + std::chrono::milliseconds(4'000));
  std::set<std::string> seen;
  const Hits warm = GetWarm(sick, [&] {
    seen.insert(sick.State());
    return std::chrono::steady_clock::now() < end;
  });
  WARN(warm.gets << " gets of G2 meanwhile, the slowest took " << warm.slowest.count() << " us");
  CHECK(warm.gets > (e2e::kSanitized ? 20u : 100u));
  CHECK(warm.hits == warm.gets);
  // None of them has waited for an I/O. A machine that stands still for a second makes them wait as
  // long, so the shorter delays prove nothing.
  CHECK((e2e::kSanitized || !silent || warm.slowest < delay / 2));
  CHECK(seen.contains("offline") == silent);
  if (!silent) {  // chunks of a silent device may be misses
    cold.join();
    durable.join();
    CHECK(got == "hit");
    CHECK(put == "durable");
  }
  sick.disk.Heal();
  if (silent) {
    cold.join();
    durable.join();
    CHECK(got != "wrong");
  }
  CHECK(Eventually([&] { return sick.State() == "ok"; }, milliseconds(30'000)));
  CHECK(MetricsAgree(sick));
  Engine engine(sick.site);
  CHECK(Eventually([&] { return engine.Hits(sick.cold) == kCold; }));
  CHECK(PutDurable(engine, {20'000, kChunkBytes}));
  CHECK(engine.wrong_bytes == 0);
  sick.StopInTime();
}

TEST_CASE("a disk that failed is a device as before once it is well, without a restart") {
  if (!CanBeSick()) return;
  for (const Illness& illness : Illnesses()) {
    SECTION(illness.name) {
      SickSite sick;
      sick.Fill();
      illness.strike(sick.disk);
      CHECK_FALSE(Load(sick, 10'000));
      CHECK(sick.AwaitStateOtherThan("ok"));
      sick.disk.Heal();
      Engine engine(sick.site);
      // Until it is mounted anew the daemon must not have it open, as an ext4 that gave up stays
      // so.
      sick.disk.Detach();
      CHECK(Eventually(
          [&] {
            engine.Find(sick.cold);
            return sick.State() == "offline" && sick.disk.LetGo();
          },
          milliseconds(60'000)));
      sick.disk.Mount();
      CHECK(Eventually([&] { return sick.State() == "ok"; }, milliseconds(60'000)));
      CHECK(Eventually([&] { return engine.Hits(sick.cold) == kCold; }));
      CHECK(engine.Hits(sick.warm) == sick.warm.size());
      CHECK(Eventually([&] { return PutDurable(engine, {20'000, kChunkBytes}); }));
      CHECK(engine.wrong_bytes == 0);
      sick.StopInTime();
    }
  }
}

TEST_CASE("a disk that could not be read is used again some seconds later, without a restart") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  Engine engine(sick.site);
  sick.disk.FailWithEio(SICK_READS);
  // Three errors in a row, each of which costs a chunk.
  CHECK(Eventually([&] {
    engine.Get(sick.cold[0]);
    engine.Get(sick.cold[1]);
    engine.Get(sick.cold[2]);
    engine.Get(sick.cold[3]);
    return sick.State() == "offline" && StateInMetrics(sick) == "offline";
  }));
  sick.disk.Heal();
  CHECK(Eventually([&] { return engine.Hits(sick.cold) + 8 >= kCold; }, milliseconds(60'000)));
  CHECK(Eventually([&] { return sick.State() == "ok"; }));
  CHECK(PutDurable(engine, {20'000, kChunkBytes}));
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
    for (off_t step = 16 << 20, at = 0; step >= 4096;) {  // all the space, to the last block
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
  // The index takes nothing after a failed write: once there is room it is opened anew.
  std::filesystem::remove(filler);
  CHECK(Eventually([&] { return sick.State() == "ok"; }, milliseconds(60'000)));
  CHECK(engine.Hits(sick.cold) == kCold);
  CHECK(PutDurable(engine, {20'001, kChunkBytes}));
  for (const TestChunk& chunk : sick.warm) CHECK(engine.Get(chunk) == GetStatus::kHit);
  CHECK(engine.wrong_bytes == 0);
  sick.StopInTime();
}

}  // namespace kvkeep::sick
