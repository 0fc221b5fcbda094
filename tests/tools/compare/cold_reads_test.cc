#include "tools/compare/cold_reads.h"

#include <absl/strings/str_cat.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/child_process.h"
#include "tools/bench/connect.h"
#include "tools/bench/content.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/operation.h"

namespace kvkeep::compare {
namespace {

using bench::Json;
using namespace std::chrono_literals;

constexpr uint64_t kChunkBytes = kMiB + 300'000;  // two pieces, the last one short
constexpr uint64_t kChunks = 10;
constexpr uint64_t kSpoilt = 7, kSpoiltAt = kChunkBytes - 1;

// In a process of its own, as all that touches gRPC: puts the chunks, with one byte of one of them
// changed when told to.
absl::Status PutAll(const bench::ClientTarget& target, bool spoil) {
  KVKEEP_ASSIGN_OR_RETURN(auto client, bench::ConnectTo(target, "putter"));
  KVKEEP_ASSIGN_OR_RETURN(const client::Namespace ns,
                          client->OpenNamespace(bench::NamespaceOf(target)));
  bench::ClientContext context;
  context.seed = target.seed;
  const std::vector<ChunkKey> keys = bench::LoadedKeys(context, kChunkBytes, 0, kChunks);
  for (uint64_t i = 0; i < kChunks; ++i) {
    std::vector<std::byte> payload(kChunkBytes);
    bench::FillPayload(target.seed, bench::PayloadOf(keys[i]), payload);
    if (spoil && i == kSpoilt) payload[kSpoiltAt] ^= std::byte{1};
    std::vector<client::PutChunk> chunks(1);
    chunks[0].key = keys[i];
    chunks[0].runs = {payload};
    KVKEEP_ASSIGN_OR_RETURN(const client::PutResult put, client->Put(ns, std::move(chunks)));
    KVKEEP_RETURN_IF_ERROR(put.error);
  }
  return absl::OkStatus();
}

struct Served {
  explicit Served(bool spoil) {
    daemon = bench::DaemonProcess::Start(
                 {.binary = KVKEEPD_PATH, .scratch_dir = scratch.path(), .g2_bytes = 64 * kMiB})
                 .value();
    target = {
        .endpoint = daemon->endpoint(), .local_socket = daemon->local_socket(), .path = "local"};
    const auto putter = bench::ChildProcess::Fork("putter", [&]() -> bench::ChildProcess::Handler {
                          return [&](const Json&) -> absl::StatusOr<Json> {
                            KVKEEP_RETURN_IF_ERROR(PutAll(target, spoil));
                            return Json::object();
                          };
                        }).value();
    const auto put = putter->Call(Json::object(), bench::kChildPatience);
    INFO(put.status());
    REQUIRE(put.ok());
  }
  ColdReadsOptions Options() const {
    return {.target = target,
            .clients = 3,
            .size = kChunkBytes,
            .chunks = kChunks,
            .held_bytes = 6 * kChunkBytes,
            .burst_seconds = 0.02};
  }

  const ScratchDir scratch;
  std::unique_ptr<bench::DaemonProcess> daemon;
  bench::ClientTarget target;
};

}  // namespace

TEST_CASE("all that cold reads get is compared, the last byte too") {
  for (const bool spoil : {false, true}) {
    const Served served(spoil);
    const auto reads = ColdReads::Start(served.Options());
    INFO(reads.status());
    REQUIRE(reads.ok());
    // Until all were got, and again; a busy machine gets few of them in one run.
    const double end = bench::WallSeconds() + 60;
    bench::Measured all;
    do {
      const auto measured = (*reads)->Run(0.1);
      INFO(measured.status());
      REQUIRE(measured.ok());
      REQUIRE(measured->seconds >= 0.1);
      all.Add(*measured, /*side_by_side=*/false);
    } while ((all.ops <= kChunks || (spoil && all.wrong_bytes == 0)) && bench::WallSeconds() < end);
    CHECK(all.ops > kChunks);
    CHECK(all.bytes == all.ops * kChunkBytes);
    CHECK(all.verified_bytes == all.bytes);
    CHECK((all.wrong_bytes > 0) == spoil);
    CHECK(all.wrong_bytes <= all.ops);
  }
}

TEST_CASE("nobody begins a cold read when the first client has nothing left to ask for") {
  const Served served(/*spoil=*/false);
  ColdReadsOptions options = served.Options();
  options.burst_seconds = 60;
  const auto reads = ColdReads::Start(options);
  REQUIRE(reads.ok());
  const std::vector<int> pids = (*reads)->pids();
  REQUIRE(pids.size() == options.clients);
  const auto used = [&pids] {
    return bench::CpuSecondsOf(pids[1]).value() + bench::CpuSecondsOf(pids[2]).value();
  };
  const double before = used();
  REQUIRE(kill(pids[0], SIGSTOP) == 0);
  // A burst of the others, who hold two chunks each and are done. Then the first one goes on.
  constexpr double kSeconds = 0.9;
  std::jthread later([&] {
    constexpr auto kPeriod = 50ms;
    double last = before;
    for (auto quiet = 0ms; quiet < 1s;) {
      std::this_thread::sleep_for(kPeriod);  // for the others to work
      const double now = used();
      const bool at_work = now == before || now - last > 0.002;
      quiet = at_work ? 0ms : quiet + kPeriod;
      last = now;
    }
    kill(pids[0], SIGCONT);
  });
  const auto measured = (*reads)->Run(kSeconds);
  later.join();
  INFO(measured.status());
  REQUIRE(measured.ok());
  CHECK(measured->ops >= 2);
  CHECK(measured->ops < 6);
  CHECK(measured->bytes == measured->ops * kChunkBytes);
  CHECK(measured->verified_bytes == measured->bytes);
}

TEST_CASE("cold reads of what is not there fail") {
  const Served served(/*spoil=*/false);
  ColdReadsOptions options = served.Options();
  options.chunks = 2 * kChunks;
  const auto reads = ColdReads::Start(options);
  REQUIRE(reads.ok());
  CHECK(absl::IsNotFound((*reads)->Run(0.1).status()));
  options.chunks = 2;
  CHECK(absl::IsInvalidArgument(ColdReads::Start(options).status()));
}

}  // namespace kvkeep::compare
