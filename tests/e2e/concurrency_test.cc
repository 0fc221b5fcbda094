// Many clients at once, on the same chunks: never wrong bytes, and nothing is left over.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <thread>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::LeaseMode;
using client::PutStatus;
using std::chrono::steady_clock;

constexpr size_t kThreads = 8;
constexpr uint64_t kKeys = 120;

TestChunk ChunkOf(uint64_t number) {
  constexpr std::array<size_t, 6> kSizes = {1, 4096, 70'000, 300'001, 1 << 20, (2 << 20) + 3};
  return {.number = number, .bytes = kSizes[number % kSizes.size()]};
}

struct Tally {
  std::atomic<uint64_t> puts{0}, hits{0}, misses{0}, leased_gets{0}, deletes{0};
  std::atomic<uint64_t> wrong_bytes{0}, broken_promises{0}, errors{0};
  bool enough() const { return puts > 100 && hits > 100 && leased_gets > 100; }
};

class Worker {
 public:
  Worker(const Site& site, int number, Tally* tally)
      : engine_(site,
                {.name = "worker " + std::to_string(number), .deadline = client::Deadline(60'000)}),
        random_(static_cast<uint64_t>(number) * 977 + 5),
        tally_(tally) {}

  // Runs until then, and on a slow machine until there was enough of everything.
  void Run(steady_clock::time_point until) {
    const auto give_up = until + std::chrono::seconds(60);
    while (steady_clock::now() < until || (!tally_->enough() && steady_clock::now() < give_up)) {
      const uint64_t dice = Next() % 100;
      if (dice < 35) {
        Put(ChunkOf(Next() % kKeys));
      } else if (dice < 70) {
        Get(ChunkOf(Next() % kKeys));
      } else if (dice < 95) {
        GetRun(Next() % kKeys);
      } else {
        Delete(Next() % kKeys);
      }
    }
    tally_->wrong_bytes += engine_.wrong_bytes;
  }

 private:
  uint64_t Next() {
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    return random_ >> 33;
  }
  void Put(const TestChunk& chunk) {
    const client::PutOutcome put =
        engine_.Put(chunk, {.durable = Next() % 10 == 0, .checksum = true});
    ++tally_->puts;
    // "Full for the moment" is a valid answer.
    if (put.status == PutStatus::kUnfinished) ++tally_->errors;
  }
  void Get(const TestChunk& chunk) {
    const GetStatus got = engine_.Get(chunk);
    if (got == GetStatus::kHit)
      ++tally_->hits;
    else if (got == GetStatus::kMiss || got == GetStatus::kBusy)
      ++tally_->misses;
    else
      ++tally_->errors;
  }
  // Leased chunks are readable, whatever other clients do meanwhile.
  void GetRun(uint64_t first) {
    std::vector<TestChunk> run;
    for (uint64_t i = 0; i < 6; ++i) run.push_back(ChunkOf((first + i) % kKeys));
    auto found =
        engine_.client().Lookup(engine_.ns(), KeysOf(run), {.lease = LeaseMode::kLeadingRun});
    if (!found.ok()) {
      ++tally_->errors;
      return;
    }
    for (uint32_t i = 0; i < found->leased_keys; ++i) {
      ++tally_->leased_gets;
      if (engine_.Get(run[i], &found->lease, i) != GetStatus::kHit) ++tally_->broken_promises;
    }
  }
  void Delete(uint64_t number) {
    const ChunkKey key = Key(number);
    ++tally_->deletes;
    if (!engine_.client().Delete(engine_.ns(), absl::MakeSpan(&key, 1)).ok()) ++tally_->errors;
  }

  Engine engine_;
  uint64_t random_;
  Tally* const tally_;
};

TEST_CASE(
    "eight clients on the same chunks for 10 s: no wrong bytes, no broken lease, no leftovers") {
  // Both tiers are smaller than all chunks together, so that chunks come and go.
  Site site({.g2 = "48MiB", .dirty_budget = "50%", .devices = {{.capacity = "96MiB"}}});
  site.Start();
  Tally tally;
  {
    std::vector<std::unique_ptr<Worker>> workers;
    for (size_t i = 0; i < kThreads; ++i) {
      workers.push_back(std::make_unique<Worker>(site, static_cast<int>(i), &tally));
    }
    const auto until = steady_clock::now() + std::chrono::seconds(10);
    std::vector<std::thread> threads;
    for (const auto& worker : workers)
      threads.emplace_back([&worker, until] { worker->Run(until); });
    for (std::thread& thread : threads) thread.join();
    CHECK(site.Status().sessions_size() == kThreads);
    // Leases are released in the background.
    CHECK(Eventually([&] { return site.Status().g2().leased_bytes() == 0; }));
  }
  std::cout << "puts " << tally.puts << ", hits " << tally.hits << ", misses " << tally.misses
            << ", gets under a lease " << tally.leased_gets << ", deletes " << tally.deletes
            << "\n";
  CHECK(tally.wrong_bytes == 0);
  CHECK(tally.broken_promises == 0);
  CHECK(tally.errors == 0);
  CHECK(tally.enough());

  CHECK(Eventually([&] { return site.Status().sessions_size() == 0; }));
  REQUIRE(site.AwaitClean());
  CHECK(Eventually([&] {
    const v1::StatusResponse status = site.Status();
    const auto& counters = status.counters();
    return status.g2().leased_bytes() == 0 && status.g2().reserved_bytes() == 0 &&
           counters.at("pinned_chunks") == 0 && counters.at("open_get_streams") == 0 &&
           counters.at("open_put_streams") == 0 && counters.at("open_session_streams") == 0;
  }));
  CHECK(site.Counter("corrupt_chunks") == 0);
  CHECK(site.Counter("sessions_opened") == site.Counter("sessions_closed"));
}

}  // namespace
namespace {

// Returns this process's sockets that are connected to that path, ordered by number.
std::vector<int> SocketsTo(const std::string& path) {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_un peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sun_family == AF_UNIX && path == peer.sun_path) sockets.push_back(fd);
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

// Gets and puts side by side: as many streams at a time as there are chunks.
size_t PutAndGetAtOnce(Engine& engine, uint64_t first, size_t count, size_t bytes) {
  std::vector<std::thread> threads;
  std::atomic<size_t> good{0};
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<std::byte> payload = Payload({first + i, bytes});
      std::vector<client::PutChunk> puts(1);
      puts[0] = {.key = Key(first + i), .runs = {payload}};
      const auto put = engine.client().Put(engine.ns(), std::move(puts), {});
      if (!put.ok() || put->chunks[0].status != PutStatus::kStored) return;
      std::vector<std::byte> back(bytes);
      const ChunkKey key = Key(first + i);
      const std::span<std::byte> to(back);
      const auto got = engine.client().Get(engine.ns(), std::span(&key, 1),
                                           {.destinations = absl::MakeSpan(&to, 1)});
      good += got.ok() && got->chunks[0].status == GetStatus::kHit && back == payload;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good;
}

}  // namespace

TEST_CASE(
    "a client with several channels is one session, over each listener, and survives one's end") {
  constexpr size_t kChannels = 3, kBytes = 3 << 20;
  Settings settings;
  settings.tcp = "127.0.0.1:" + std::to_string(FreePort());
  Site site(settings);
  site.Start();
  for (const std::string& endpoint : {site.endpoint(), settings.tcp}) {
    INFO(endpoint);
    const uint64_t before = site.Counter("connections");
    Engine engine(endpoint, {.path = client::PathChoice::kGrpc, .channels = kChannels});
    const uint64_t first = endpoint == settings.tcp ? 1'000 : 1;
    CHECK(PutAndGetAtOnce(engine, first, 8, kBytes) == 8);
    CHECK(site.Counter("connections") - before == kChannels);
    // The previous engine's session may still be ending.
    CHECK(Eventually([&] { return site.Status().sessions_size() == 1; }));
    CHECK(engine.client().GetStats().sessions_opened == 1);
    if (endpoint == settings.tcp) continue;
    // gRPC's end and ours of each. The last one's connection breaks: a new session begins, as a
    // stream on it would find no daemon.
    const std::vector<int> sockets = SocketsTo(site.socket());
    REQUIRE(sockets.size() == 2 * kChannels);
    REQUIRE(shutdown(sockets.back(), SHUT_RDWR) == 0);
    CHECK(Eventually([&] { return engine.client().GetStats().sessions_opened == 2; }));
    CHECK(Eventually([&] { return site.Status().sessions_size() == 1; }));
    CHECK(PutAndGetAtOnce(engine, 100, 8, kBytes) == 8);
    CHECK(site.Counter("connections") - before == 2 * kChannels);
  }
  for (const uint32_t wrong : {0u, 17u}) {
    const auto connected =
        client::Client::Connect({.endpoint = site.endpoint(), .channels = wrong});
    CHECK(absl::IsInvalidArgument(connected.status()));
    INFO(connected.status());
    CHECK(connected.status().message() ==
          "channels: " + std::to_string(wrong) + "; 1 to 16 are possible");
  }
}

}  // namespace kvkeep::e2e
