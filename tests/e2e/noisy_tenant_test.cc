// A tenant that writes ten times its quota while others read, and its cost to them.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kQuota = 96 << 20;
constexpr size_t kNoisyChunkBytes = (256 << 10) - 4096;  // with its header a quarter of a MiB

std::string Quarter(const Site& site, const std::string& name, const std::string& more) {
  return absl::StrCat("  - {name: ", name, ", unix: ", site.path(name + ".sock"),
                      ", local: ", site.path(name + "-local.sock"), ", g2_share: 25%", more, "}\n");
}

// G2 of 64 MiB, a quarter each for noisy, a, b and the default tenant; G3 of 384 MiB.
struct QuartersSite {
  QuartersSite()
      : site({.segment_bytes = "16MiB",
              .dirty_budget = "50%",
              .devices = {{.capacity = "384MiB"}}}) {
    site.settings.extra =
        absl::StrCat("tenants:\n", Quarter(site, "noisy", ", g3_quota: 96MiB"),
                     Quarter(site, "a", ", g3_quota: 64MiB"), Quarter(site, "b", ""));
  }
  Engine Connect(const std::string& tenant) const {
    return Engine("unix://" + site.path(tenant + ".sock"), {.name = tenant});
  }
  Site site;
};

// Figures of a reader that reads all of its chunks, mostly in G3, again and again.
struct Readings {
  uint64_t gets = 0, hits = 0, misses = 0, others = 0, whole_lookups = 0, lookups = 0;
  std::vector<double> get_us, lookup_us;

  static double P99(std::vector<double> times) {
    if (times.empty()) return 0;
    const auto at = times.begin() + static_cast<ptrdiff_t>(times.size() * 99 / 100);
    std::nth_element(times.begin(), at, times.end());
    return *at;
  }
};

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void ReadOnce(Engine& engine, const std::vector<TestChunk>& chunks, Readings& readings) {
  Clock::time_point start = Clock::now();
  const size_t found = engine.Find(chunks).any;
  readings.lookup_us.push_back(MicrosSince(start));
  ++readings.lookups;
  readings.whole_lookups += found == chunks.size();
  for (const TestChunk& chunk : chunks) {
    start = Clock::now();
    const GetStatus got = engine.Get(chunk);
    readings.get_us.push_back(MicrosSince(start));
    ++readings.gets;
    ++(got == GetStatus::kHit    ? readings.hits
       : got == GetStatus::kMiss ? readings.misses
                                 : readings.others);
  }
}

void Tell(const char* when, const Readings& readings) {
  std::cout << when << ": " << readings.hits << " hits of " << readings.gets << " gets, p99 "
            << Readings::P99(readings.get_us) << " us; lookups p99 "
            << Readings::P99(readings.lookup_us) << " us\n";
}

// Puts of which all reach G3: at most as many at a time as may be dirty.
bool PutToG3(const QuartersSite& shared, Engine& engine, const std::vector<TestChunk>& chunks) {
  constexpr size_t kAtOnce = 24;
  for (size_t i = 0; i < chunks.size(); i += kAtOnce) {
    const auto first = chunks.begin() + static_cast<ptrdiff_t>(i);
    const auto count = static_cast<ptrdiff_t>(std::min(kAtOnce, chunks.size() - i));
    if (!engine.PutAll({first, first + count}) || !shared.site.AwaitClean()) return false;
  }
  return true;
}

// All share one disk and few cores: calls are slower, within a limit. A lookup waits for no disk.
// The machine's other work is in the quiet times before and after as well.
void CheckTimes(const Readings& quiet, const Readings& during, const Readings& after) {
  if (kSanitized) return;
  const auto quietly = [&](std::vector<double> Readings::*times) {
    return std::max(Readings::P99(quiet.*times), Readings::P99(after.*times));
  };
  CHECK(Readings::P99(during.get_us) < 8 * quietly(&Readings::get_us) + 50'000);
  CHECK(Readings::P99(during.lookup_us) < 8 * quietly(&Readings::lookup_us) + 10'000);
}

// Nothing of its G3 went, for any reason.
void CheckUntouched(const v1::TenantStatus& tenant, uint64_t bytes) {
  INFO(tenant.name());
  CHECK(tenant.g3_evictions() == 0);
  CHECK(tenant.g3_pushed_out() == 0);
  CHECK(tenant.forgotten_chunks() == 0);
  CHECK(tenant.rejected_puts() == 0);
  CHECK(tenant.g3_used_bytes() == bytes);
}

}  // namespace

TEST_CASE("a tenant that writes ten times its quota costs the others no chunk") {
  QuartersSite shared;
  shared.site.Start();
  std::vector<Engine> readers;
  readers.push_back(shared.Connect("a"));
  readers.push_back(shared.Connect("b"));
  Engine standard(shared.site), noisy = shared.Connect("noisy");
  // Three times what is in G2, within quota and share of G3.
  const std::vector<TestChunk> mine = Chunks(1, 190, kNoisyChunkBytes);
  for (Engine& reader : readers) REQUIRE(PutToG3(shared, reader, mine));
  REQUIRE(PutToG3(shared, standard, mine));

  const auto read_all = [&](const std::function<bool()>& again) {
    std::vector<Readings> readings(2);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < readers.size(); ++i) {
      threads.emplace_back([&, i] {
        do ReadOnce(readers[i], mine, readings[i]);
        while (again());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return readings;
  };
  std::atomic<int> rounds{0};
  const std::vector<Readings> quiet = read_all([&] { return ++rounds < 4; });

  std::atomic<bool> flooding{true};
  bool flooded = false;
  uint64_t most = 0;
  std::thread flood([&] {
    flooded = true;
    for (uint64_t first = 0; first < 10 * kQuota / (256 << 10); first += 64) {
      flooded &= noisy.PutAll(Chunks(10'000 + first, 64, kNoisyChunkBytes));
      most = std::max<uint64_t>(most, shared.site.TenantStatus("noisy").g3_used_bytes());
    }
    flooding = false;
  });
  const std::vector<Readings> during = read_all([&] { return flooding.load(); });
  flood.join();
  CHECK(flooded);
  REQUIRE(shared.site.AwaitClean());
  rounds = 0;
  const std::vector<Readings> after = read_all([&] { return ++rounds < 4; });

  for (size_t i = 0; i < readers.size(); ++i) {
    INFO("reader " << i);
    Tell("quiet", quiet[i]);
    Tell("during the flood", during[i]);
    Tell("after it", after[i]);
    CHECK(quiet[i].misses + during[i].misses + after[i].misses == 0);
    // The chunk is there, but had no room to be read into at once: only where everything takes
    // several times longer.
    CHECK((kSanitized || quiet[i].hits == quiet[i].gets));
    CHECK((kSanitized || during[i].hits == during[i].gets));
    CHECK(during[i].whole_lookups == during[i].lookups);
    CHECK(readers[i].wrong_bytes == 0);
    CheckTimes(quiet[i], during[i], after[i]);
  }
  CHECK(standard.Find(mine).any == mine.size());
  for (const char* tenant : {"a", "b", "default"}) {
    CheckUntouched(shared.site.TenantStatus(tenant), mine.size() * (256 << 10));
  }
  const v1::TenantStatus flooder = shared.site.TenantStatus("noisy");
  CHECK(flooder.g3_quota_evictions() > 0);
  most = std::max<uint64_t>(most, flooder.g3_used_bytes());
  CHECK(most <= kQuota);
  CHECK(flooder.g3_used_bytes() > kQuota - (256 << 10));  // exact within one chunk
}

TEST_CASE(
    "quotas hold over a restart, and a smaller one takes the oldest before anybody is served") {
  QuartersSite shared;
  shared.site.settings.g3 = "  policy: lru\n";  // for the order below
  shared.site.Start();
  {
    Engine noisy = shared.Connect("noisy");
    REQUIRE(PutToG3(shared, noisy, Chunks(1, 400, kNoisyChunkBytes)));
  }
  CHECK(shared.site.TenantStatus("noisy").g3_used_bytes() == kQuota);
  std::string& extra = shared.site.settings.extra;
  extra.replace(extra.find("96MiB"), 5, "32MiB");
  REQUIRE(shared.site.Stop().exit_status == 0);
  shared.site.Start();
  CHECK(shared.site.TenantStatus("noisy").g3_used_bytes() == 32 << 20);
  Engine noisy = shared.Connect("noisy");
  // The order is that in which the writes ended, and some run side by side: chunks on the border
  // may have changed places. What is left is 128 chunks, and they are read.
  constexpr uint64_t kSideBySide = 64;
  CHECK(noisy.Find(Chunks(1, 272 - kSideBySide, kNoisyChunkBytes)).g3 == 0);
  CHECK(noisy.Find(Chunks(1, 400, kNoisyChunkBytes)).g3 == 128);
  CHECK(noisy.Hits(Chunks(273 + kSideBySide, 128 - kSideBySide, kNoisyChunkBytes)) ==
        128 - kSideBySide);
}

}  // namespace kvkeep::e2e
