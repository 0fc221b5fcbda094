// A tenant that storms: lookups, puts and gets as fast as it can, by both listeners, far over its
// rates, without ever waiting when told to. Measures its service, and its cost to another tenant.
#include <absl/strings/match.h>
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
using client::PathChoice;
using client::PutStatus;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kBytesPerSecond = 8 << 20;
constexpr uint64_t kKeysPerSecond = 2'000;
constexpr size_t kStormChunkBytes = 256 << 10;
constexpr int kStormRounds = 150;

std::string StormTenant(const Site& site, const std::string& name, const std::string& more) {
  return absl::StrCat("  - {name: ", name, ", unix: ", site.path(name + "/kvkeep.sock"),
                      ", local: ", site.path(name + "/local.sock"), ", g2_share: 25%", more, "}\n");
}

struct StormSite {
  StormSite() : site({.segment_bytes = "16MiB", .devices = {}}) {
    const std::string rates = absl::StrCat(", bytes_per_second: ", kBytesPerSecond,
                                           ", keys_per_second: ", kKeysPerSecond);
    site.settings.extra = absl::StrCat("tenants:\n", StormTenant(site, "stormy", rates),
                                       StormTenant(site, "calm", ""));
  }
  Engine Connect(const std::string& tenant, PathChoice path) const {
    return Engine("unix://" + site.path(tenant + "/kvkeep.sock"), {.name = tenant, .path = path});
  }
  Site site;
};

// Figures of a calm client: a lookup of all its chunks, a get and a put of one, again and again.
struct Calls {
  uint64_t whole_lookups = 0, hits = 0, put = 0;
  std::vector<double> us;

  double At(double part) {
    const auto at = us.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(us.size() - 1));
    std::nth_element(us.begin(), at, us.end());
    return *at;
  }
};

Calls Work(Engine& engine, const std::vector<TestChunk>& mine, uint64_t* next) {
  Calls calls;
  for (int round = 0; round < kStormRounds; ++round) {
    const TestChunk& wanted = mine[static_cast<size_t>(round) % mine.size()];
    const Clock::time_point start = Clock::now();
    calls.whole_lookups += engine.Find(mine).any == mine.size();
    calls.hits += engine.Get(wanted) == GetStatus::kHit;
    // Under existing keys, so that puts do not evict what is looked up.
    calls.put += engine.Put(mine[++*next % mine.size()]).status == PutStatus::kPresent;
    calls.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return calls;
}

// Answers to storming clients.
struct Stormed {
  std::atomic<uint64_t> served{0}, refused{0}, others{0};

  void Note(const absl::Status& status) {
    if (status.ok()) {
      ++served;
    } else if (absl::IsResourceExhausted(status)) {
      ++refused;
    } else {
      ++others;
    }
  }
};

// Storms until told to end. Each put is of a new chunk, so that each is copied if it is accepted.
void Storm(Engine& engine, uint64_t first, const std::atomic<bool>& on, Stormed& stormed) {
  const std::vector<TestChunk> asked = Chunks(first, 200, kStormChunkBytes);
  const std::vector<ChunkKey> keys = KeysOf(asked);
  for (uint64_t number = first; on; ++number) {
    stormed.Note(engine.client().Lookup(engine.ns(), keys, {}).status());
    engine.error = absl::OkStatus();
    const client::PutOutcome put = engine.Put({number, kStormChunkBytes});
    const bool over =
        put.status == PutStatus::kRejected && absl::StrContains(put.message, "_per_second: this ");
    stormed.Note(over ? absl::ResourceExhaustedError(put.message) : engine.error);
    engine.error = absl::OkStatus();
    engine.Get({number, kStormChunkBytes});
    stormed.Note(engine.error);
  }
}

}  // namespace

TEST_CASE(
    "a tenant that storms over both listeners is held to its rates, and others hardly notice") {
  StormSite shared;
  shared.site.Start();
  for (const PathChoice path : {PathChoice::kLocal, PathChoice::kGrpc}) {
    INFO((path == PathChoice::kLocal ? "by the local path" : "by gRPC"));
    Engine calm = shared.Connect("calm", path);
    const std::vector<TestChunk> mine = Chunks(1, 16, kStormChunkBytes);
    REQUIRE(calm.PutAll(mine));
    uint64_t next = 0;
    Calls quiet = Work(calm, mine, &next);

    std::vector<Engine> stormy;
    for (const PathChoice by : {PathChoice::kLocal, PathChoice::kLocal, PathChoice::kGrpc}) {
      stormy.push_back(shared.Connect("stormy", by));
    }
    const v1::TenantStatus before = shared.site.TenantStatus("stormy");
    const uint64_t copied_before =
        shared.site.Counter("put_received_bytes") + shared.site.Counter("local_put_bytes");
    std::atomic<bool> on{true};
    Stormed stormed;
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < stormy.size(); ++i) {
      const uint64_t first = 1'000'000 * (i + 1) + (path == PathChoice::kLocal ? 0 : 500'000);
      threads.emplace_back([&, i, first] { Storm(stormy[i], first, on, stormed); });
    }
    Calls during = Work(calm, mine, &next);
    // Long enough to be over its rates, however fast the calm one was.
    CHECK(Eventually([&] { return stormed.refused > 100; }));
    on = false;
    for (std::thread& thread : threads) thread.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    Calls later = Work(calm, mine, &next);
    const uint64_t copied = shared.site.Counter("put_received_bytes") +
                            shared.site.Counter("local_put_bytes") - copied_before;

    std::cout << "rounds: quiet p50 " << quiet.At(0.5) << " us, p99 " << quiet.At(0.99)
              << "; stormed p50 " << during.At(0.5) << ", p99 " << during.At(0.99)
              << "; storm: " << stormed.served << " served, " << stormed.refused << " refused in "
              << seconds << " s, " << copied << " bytes copied\n";
    for (const Calls& calls : {quiet, during, later}) {
      CHECK(calls.whole_lookups == kStormRounds);
      CHECK(calls.hits == kStormRounds);
      CHECK(calls.put == kStormRounds);
    }
    CHECK(calm.wrong_bytes == 0);
    CHECK(stormed.others == 0);
    // The rate, what was saved, and one call of each client that overdrew.
    const double most = static_cast<double>(kBytesPerSecond) * (seconds + 1) + 4 * kStormChunkBytes;
    CHECK(static_cast<double>(copied) <= most);
    const v1::TenantStatus after = shared.site.TenantStatus("stormy");
    CHECK(after.key_rate_refusals() > before.key_rate_refusals());
    CHECK(shared.site.TenantStatus("calm").key_rate_refusals() == 0);
    CHECK(shared.site.TenantStatus("calm").byte_rate_refusals() == 0);
    CHECK(shared.site.TenantStatus("calm").rejected_puts() == 0);
    // This needs up to three more processors than there may be: calls are slower, within a limit.
    // The machine's other work is in the quiet times before and after as well.
    if (kSanitized) continue;
    const auto quietly = [&](double part) { return std::max(quiet.At(part), later.At(part)); };
    CHECK(during.At(0.5) < 8 * quietly(0.5) + 2'000);
    CHECK(during.At(0.99) < 8 * quietly(0.99) + 50'000);
  }
}

}  // namespace kvkeep::e2e
