// Many engines put at once on a small G2, where limits.staging and limits.reserved_bytes are less
// than all of them would take: every put is kept, and none waits long.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::PathChoice;
using client::PutStatus;
using Clock = std::chrono::steady_clock;

constexpr size_t kPutChunkBytes = 1 << 20;
constexpr size_t kPuts = 40;       // of each
constexpr size_t kChunksOfPut = 2;

// With the shares of an embedded daemon's default.
Settings SmallG2() {
  return {.g2 = "256MiB",
          .dirty_budget = "25%",
          .devices = {},
          .reserved_bytes = "25%",
          .local = true};
}

struct OnePutter {
  size_t kept = 0;
  std::vector<double> seconds;
  std::string first_rejection;

  void Run(Engine& engine, uint64_t first) {
    for (size_t i = 0; i < kPuts; ++i) {
      std::vector<std::vector<std::byte>> payloads;
      std::vector<client::PutChunk> chunks;
      for (const TestChunk& chunk :
           Chunks(first + i * kChunksOfPut, kChunksOfPut, kPutChunkBytes)) {
        payloads.push_back(Payload(chunk));
        chunks.push_back({.key = Key(chunk.number), .runs = {payloads.back()}});
      }
      const Clock::time_point began = Clock::now();
      const auto put = engine.client().Put(engine.ns(), std::move(chunks));
      seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
      if (!put.ok()) {
        first_rejection = put.status().ToString();
        continue;
      }
      for (const client::PutOutcome& outcome : put->chunks) {
        kept += outcome.status == PutStatus::kStored;
        if (first_rejection.empty()) first_rejection = outcome.message;
      }
    }
  }
};

}  // namespace

TEST_CASE("every put of many engines at once is kept, and none waits long", "[times]") {
  const size_t engines = GENERATE(8, 16, 32);
  Site site(SmallG2());
  site.Start();
  std::vector<std::unique_ptr<Engine>> clients;
  for (size_t i = 0; i < engines; ++i) {
    clients.push_back(std::make_unique<Engine>(
        site, Engine::Options{.name = absl::StrCat("engine ", i), .path = PathChoice::kLocal}));
  }
  std::vector<OnePutter> putters(engines);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < engines; ++i) {
    threads.emplace_back([&, i] { putters[i].Run(*clients[i], 1 + i * 1'000'000); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> seconds;
  for (size_t i = 0; i < engines; ++i) {
    INFO(i << ": " << putters[i].first_rejection);
    CHECK(putters[i].kept == kPuts * kChunksOfPut);
    seconds.insert(seconds.end(), putters[i].seconds.begin(), putters[i].seconds.end());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2], slowest = seconds.back();
  std::cout << engines << " engines: a put took " << median * 1e3 << " ms, at most "
            << slowest * 1e3 << " ms; " << site.Counter("local_waited_puts")
            << " waited for space, " << (site.Counter("local_registered_bytes") >> 20)
            << " MiB were the clients' own memory\n";
  // On a machine that is busy otherwise all puts are slow.
  CHECK((kSanitized || slowest < std::max(1.0, 20 * median)));
  CHECK(site.Status().g2().reserved_bytes() == 0);
}

TEST_CASE("what engines do not use of the staging memory comes back") {
  Site site(SmallG2());
  site.Start();
  std::vector<std::unique_ptr<Engine>> clients;
  for (size_t i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Engine>(
        site, Engine::Options{.name = "idle", .path = PathChoice::kLocal}));
    OnePutter putter;
    putter.Run(*clients.back(), 1 + i * 1'000'000);
    CHECK(putter.kept == kPuts * kChunksOfPut);
  }
  CHECK(site.Counter("local_staging_bytes") <= 64 << 20);
  CHECK(Eventually([&] { return site.Counter("local_staging_bytes") == 0; }));
  Engine late(site, {.name = "late", .path = PathChoice::kLocal});
  CHECK(late.PutAll(Chunks(9'000'000, 4, kPutChunkBytes)));
}

}  // namespace kvkeep::e2e
