// Memory that the gRPC path uses again and again: payloads go through memory that is there.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"
#include "tests/e2e/process_usage.h"

namespace kvkeep::e2e {
namespace {

constexpr size_t kFaultsChunks = 16, kFaultsChunkBytes = 4 << 20;
constexpr int kFaultsCalls = kSanitized ? 2 : 12;

}  // namespace

TEST_CASE("puts of many chunks in a call find the daemon's memory in place") {
  Site site({.g2 = "512MiB", .devices = {}});
  site.before_exec = [] { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); };  // one fault, one page
  site.Start();
  Engine engine(site, {.path = client::PathChoice::kGrpc});
  const std::vector<std::byte> payload(kFaultsChunkBytes, std::byte{7});
  uint64_t number = 0;
  const auto put = [&] {
    std::vector<client::PutChunk> chunks(kFaultsChunks);
    for (client::PutChunk& chunk : chunks) chunk = {.key = Key(++number), .runs = {payload}};
    const auto result = engine.client().Put(engine.ns(), std::move(chunks));
    REQUIRE(result.ok());
    REQUIRE(result->error.ok());
    REQUIRE(std::all_of(result->chunks.begin(), result->chunks.end(), [](const auto& outcome) {
      return outcome.status == client::PutStatus::kStored;
    }));
  };
  for (size_t bytes = 0; bytes < 512 << 20; bytes += kFaultsChunks * kFaultsChunkBytes) put();
  const uint64_t before = UsageOf(site.Status().pid()).page_faults;
  for (int call = 0; call < kFaultsCalls; ++call) put();
  const uint64_t faults = UsageOf(site.Status().pid()).page_faults - before;
  const uint64_t pages = kFaultsCalls * kFaultsChunks * kFaultsChunkBytes / sysconf(_SC_PAGESIZE);
  WARN(faults << " page faults for " << pages << " pages");
  CHECK((kSanitized || faults < pages / 8));
}

}  // namespace kvkeep::e2e
