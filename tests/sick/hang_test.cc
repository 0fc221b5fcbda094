// A disk that answers nothing for many seconds: hits in G2 do not notice, calls that need the disk
// end in time, the state shows it, and everything goes on when the disk does.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/types/span.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <span>
#include <thread>
#include <utility>

#include "tests/fakes/from_environment.h"
#include "tests/sick/sick_site.h"

namespace kvkeep::sick {
namespace {

using client::GetStatus;
using client::PathChoice;
using std::chrono::steady_clock;

constexpr client::Deadline kShort{1'000};
constexpr auto kSegment = std::chrono::milliseconds(e2e::kSanitized ? 500 : 1'000);
constexpr int kAttempts = 6;

// A client that gets chunks of G3, and puts new ones, all the time while it is allowed to.
class ColdClient {
 public:
  explicit ColdClient(SickSite& sick, PathChoice path = PathChoice::kAuto)
      : engine_(sick.site, {.name = "cold", .deadline = kShort, .path = path}), cold_(sick.cold) {
    thread_ = std::thread([this] { Run(); });
  }
  ~ColdClient() { Stop(); }
  // Returns when it makes no call any more.
  void Pause() {
    paused_ = true;
    REQUIRE(Eventually([this] { return idle_.load(); }));
  }
  void GoOn() { paused_ = idle_ = false; }
  // Returns how many bytes were wrong, up to its end.
  uint64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return engine_.wrong_bytes;
  }
  std::atomic<int64_t> slowest_ms{0};

 private:
  void Run() {
    for (uint64_t i = 0; !stop_; ++i) {
      idle_ = paused_.load();
      if (!idle_) {
        const auto begin = steady_clock::now();
        engine_.Get(cold_[i * 7 % cold_.size()]);
        engine_.Put({100'000 + i, kChunkBytes});
        const auto took = steady_clock::now() - begin;
        slowest_ms = std::max<int64_t>(slowest_ms,
                                       std::chrono::duration_cast<milliseconds>(took).count() / 2);
      }
      std::this_thread::sleep_for(milliseconds(2));  // leaves cores to the measured one
    }
  }
  Engine engine_;
  const std::vector<TestChunk> cold_;
  std::atomic<bool> stop_{false}, paused_{false}, idle_{false};
  std::thread thread_;
};

// Hits in G2 for one segment: the time of the client's call, without the test's work on the bytes.
void Measure(Engine& engine, const std::vector<TestChunk>& warm, Latencies& out) {
  std::vector<std::vector<std::byte>> payloads;
  for (const TestChunk& chunk : warm) payloads.push_back(e2e::Payload(chunk));
  std::vector<std::byte> buffer(payloads[0].size());
  std::span<std::byte> to(buffer);
  const auto end = steady_clock::now() + kSegment;
  for (size_t i = 0; steady_clock::now() < end; ++i) {
    const ChunkKey key = e2e::Key(warm[i % warm.size()].number);
    const auto begin = steady_clock::now();
    const auto got = engine.client().Get(engine.ns(), absl::MakeSpan(&key, 1),
                                         {.destinations = absl::MakeSpan(&to, 1)});
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
    if (!got.ok()) FAIL(got.status());
    if (got->chunks[0].status != GetStatus::kHit) FAIL("no hit");
    engine.wrong_bytes += buffer != payloads[i % warm.size()];
    out.all.push_back(took.count());
  }
}

// Hits in G2 beside a G3 that hangs, and beside a healthy one: in turns, so that the machine's
// other load evens out. No other client computes in either: clients that wait for a hanging disk do
// not, and while it is healthy there are none.
struct Comparison {
  Latencies healthy, hanging;

  Comparison(SickSite& sick, ColdClient& cold, Engine& engine, const std::vector<TestChunk>& warm) {
    for (int round = 0; round < 3; ++round) {
      cold.Pause();
      REQUIRE(sick.site.AwaitClean());
      Measure(engine, warm, healthy);
      sick.disk.Hang(SICK_ALL);
      cold.GoOn();
      REQUIRE(Eventually([&] { return sick.disk.hanging() > 0; }));
      Measure(engine, warm, hanging);
      sick.disk.Heal();
    }
  }
  bool Good() {
    return hanging.At(0.5) <= 1.2 * healthy.At(0.5) &&
           hanging.At(0.99) <= 2 * healthy.At(0.99) + 100;
  }
  std::string ToString() {
    return absl::StrFormat(
        "G2 hits of 64 KiB, G3 healthy p50 %.1f p99 %.1f us (%d), hanging p50 %.1f p99 %.1f us "
        "(%d), so p50 %.2f and p99 %.2f times",
        healthy.At(0.5), healthy.At(0.99), healthy.all.size(), hanging.At(0.5), hanging.At(0.99),
        hanging.all.size(), hanging.At(0.5) / healthy.At(0.5), hanging.At(0.99) / healthy.At(0.99));
  }
};

// How long the disk hangs in long hangs: KVKEEP_SICK_HANG_SECONDS, by default a moment.
std::chrono::seconds LongHang() {
  return std::chrono::seconds(FromEnvironment("KVKEEP_SICK_HANG_SECONDS", 6));
}

}  // namespace

TEST_CASE("hits in G2 go on as fast while every I/O of G3 hangs", "[times]") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  const std::vector<TestChunk> warm = Chunks(2'000, 8, 64 << 10);
  for (const auto& [path, name] :
       {std::pair{PathChoice::kLocal, "local path"}, std::pair{PathChoice::kGrpc, "gRPC"}}) {
    Engine engine(sick.site, {.name = "warm", .path = path});
    REQUIRE(engine.PutAll(warm));
    ColdClient cold(sick, path);
    // The machine's other work says nothing about the daemon, and does not hit every attempt; the
    // daemon's own delays do.
    bool good = false;
    for (int attempt = 0; attempt < kAttempts && !good; ++attempt) {
      Comparison comparison(sick, cold, engine, warm);
      good = e2e::kSanitized || comparison.Good();
      WARN(name << ": " << comparison.ToString());
    }
    CHECK(good);
    CHECK(cold.Stop() == 0);
    CHECK(cold.slowest_ms < 5 * kShort.count());  // a call ends by its deadline
    CHECK(engine.wrong_bytes == 0);
  }
  Engine engine(sick.site);
  CHECK(Eventually([&] { return engine.Hits(sick.cold) == kCold; }, milliseconds(30'000)));
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a disk that hangs is shown, kept away from, and taken back when it answers") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  Engine engine(sick.site, {.deadline = kShort});
  Engine patient(sick.site, {.name = "patient", .deadline = client::Deadline(60'000)});
  sick.disk.Hang(SICK_ALL);
  const auto began = steady_clock::now();
  CHECK(engine.Get(sick.cold[0]) != GetStatus::kHit);
  engine.Put({10'000, kChunkBytes});
  CHECK(Eventually([&] { return sick.disk.hanging() > 0; }));
  CHECK(Eventually([&] { return sick.State() == "offline"; }, milliseconds(30'000)));
  const auto took = steady_clock::now() - began;
  INFO(sick.site.Status().devices(0).message());
  CHECK(absl::StrContains(sick.site.Status().devices(0).message(), "does not answer"));
  WARN("shown after " << std::chrono::duration<double>(took).count() << " s");
  // Now no call waits for it any more.
  const auto begin = steady_clock::now();
  CHECK(patient.Get(sick.cold[1]) == GetStatus::kMiss);
  CHECK_FALSE(PutDurable(patient, {10'001, kChunkBytes}));
  CHECK((e2e::kSanitized || steady_clock::now() - begin < std::chrono::seconds(30)));
  {
    ColdClient cold(sick);  // memory comes and goes, but none that a stuck read may yet write to
    do {
      CHECK(patient.Hits(sick.warm) == sick.warm.size());
    } while (steady_clock::now() - began < LongHang());
    CHECK(cold.Stop() == 0);
  }
  sick.disk.Heal();
  CHECK(Eventually([&] { return sick.State() == "ok"; }, milliseconds(30'000)));
  Engine after(sick.site);
  CHECK(Eventually([&] { return after.Hits(sick.cold) == kCold; }, milliseconds(30'000)));
  CHECK(PutDurable(after, {10'002, kChunkBytes}));
  CHECK(after.wrong_bytes + engine.wrong_bytes + patient.wrong_bytes == 0);
  sick.StopInTime();
}

TEST_CASE("a daemon whose disk hangs ends when it is told to") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  Engine engine(sick.site, {.deadline = kShort});
  sick.disk.Hang(SICK_ALL);
  engine.Get(sick.cold[0]);
  engine.Put({10'000, kChunkBytes});
  sick.site.Signal(SIGTERM);
  // It gives up; the kernel keeps the rest of the process until its last I/O has ended.
  CHECK(sick.site.AwaitLog("does not answer", milliseconds(60'000)));
  sick.disk.Heal();
  CHECK(sick.site.AwaitEnd(milliseconds(30'000)).exit_status == 1);
  sick.site.Start();
  Engine after(sick.site);
  CHECK(after.Hits(sick.cold) == kCold);
  CHECK(after.wrong_bytes == 0);
}

}  // namespace kvkeep::sick
