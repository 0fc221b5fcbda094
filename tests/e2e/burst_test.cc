// A burst of more than the dirty budget: G3 has it as soon as the drive can have written it.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

// Seven eighths of G2, as chunks of 1 MiB; KVKEEP_BURST_MIB sets G2's size.
struct Burst {
  Burst() {
    const char* wanted = std::getenv("KVKEEP_BURST_MIB");
    const size_t g2_mib = wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 64;
    settings.g2 = absl::StrCat(g2_mib, "MiB");
    settings.dirty_budget = "25%";  // the default
    settings.devices = {{.capacity = absl::StrCat(2 * g2_mib + 64, "MiB")}};
    settings.drain_timeout = "60s";
    chunks = Chunks(1, g2_mib * 7 / 8, 1 << 20);
  }
  Settings settings;
  std::vector<TestChunk> chunks;
};

}  // namespace

TEST_CASE("a burst of seven eighths of G2 is all in G3 soon after, and found after kill -9") {
  Burst burst;
  Site site(burst.settings);
  site.Start();
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(burst.chunks));
    const auto begin = std::chrono::steady_clock::now();
    const bool all = Eventually([&] { return engine.Find(burst.chunks).g3 == burst.chunks.size(); },
                                milliseconds(60'000));
    const auto took = std::chrono::steady_clock::now() - begin;
    std::cout << "burst of " << burst.chunks.size() << " MiB: " << engine.Find(burst.chunks).g3
              << " chunks in G3 after "
              << std::chrono::duration_cast<milliseconds>(took).count() << " ms\n";
    CHECK(all);
    REQUIRE(site.AwaitKept());
  }
  site.Kill();
  site.Start();
  Engine after(site);
  CHECK(after.Find(burst.chunks).g3 == burst.chunks.size());
  CHECK(after.Hits(burst.chunks) == burst.chunks.size());
  CHECK(after.wrong_bytes == 0);
}

TEST_CASE("a daemon that stops amid a burst has all of it in G3") {
  Burst burst;
  Site site(burst.settings);
  site.Start();
  REQUIRE(Engine(site).PutAll(burst.chunks));
  CHECK(site.Stop().exit_status == 0);
  site.Start();
  CHECK(Engine(site).Find(burst.chunks).g3 == burst.chunks.size());
}

}  // namespace kvkeep::e2e
