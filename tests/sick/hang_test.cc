// A disk that answers nothing for many seconds: hits in G2 do not notice, calls that need the disk
// end in time, the state tells, and all goes on when the disk does.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "tests/sick/sick_site.h"

namespace kvkeep::sick {
namespace {

using client::GetStatus;
using std::chrono::steady_clock;

constexpr client::Deadline kShort{1'000};
constexpr auto kSegment = std::chrono::milliseconds(e2e::kSanitized ? 500 : 1'500);

// A client that wants chunks of G3, and puts new ones, all the time.
class ColdClient {
 public:
  explicit ColdClient(SickSite& sick)
      : engine_(sick.site, {.name = "cold", .deadline = kShort}), cold_(sick.cold) {
    thread_ = std::thread([this] { Run(); });
  }
  ~ColdClient() { Stop(); }
  // How many bytes were wrong, to its end.
  uint64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return engine_.wrong_bytes;
  }
  std::atomic<int64_t> slowest_ms{0};

 private:
  void Run() {
    for (uint64_t i = 0; !stop_; ++i) {
      const auto begin = steady_clock::now();
      engine_.Get(cold_[i * 7 % cold_.size()]);
      engine_.Put({100'000 + i, kChunkBytes});
      const auto took = steady_clock::now() - begin;
      slowest_ms =
          std::max<int64_t>(slowest_ms, std::chrono::duration_cast<milliseconds>(took).count() / 2);
      std::this_thread::sleep_for(milliseconds(2));  // leaves cores to the one that is measured
    }
  }
  Engine engine_;
  const std::vector<TestChunk> cold_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Latencies {
  std::vector<double> us;
  double At(double share) {
    std::sort(us.begin(), us.end());
    return us.empty() ? 0 : us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))];
  }
};

// Hits in G2 for one segment.
void Measure(Engine& engine, const std::vector<TestChunk>& warm, Latencies& out) {
  const auto end = steady_clock::now() + kSegment;
  for (size_t i = 0; steady_clock::now() < end; ++i) {
    const auto begin = steady_clock::now();
    const GetStatus got = engine.Get(warm[i % warm.size()]);
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
    if (got != GetStatus::kHit) FAIL("no hit: " << client::GetStatusName(got));
    out.us.push_back(took.count());
  }
}

// How long the disk hangs where it hangs for long: KVKEEP_SICK_HANG_SECONDS, a moment if not said.
std::chrono::seconds LongHang() {
  const char* const asked = std::getenv("KVKEEP_SICK_HANG_SECONDS");
  return std::chrono::seconds(asked != nullptr ? std::strtoull(asked, nullptr, 10) : 6);
}

}  // namespace

TEST_CASE("hits in G2 go on while every I/O of G3 hangs", "[times]") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  const std::vector<TestChunk> warm = Chunks(2'000, 8, 64 << 10);
  Engine engine(sick.site, {.name = "warm"});
  Latencies healthy, hanging;
  {
    REQUIRE(engine.PutAll(warm));
    ColdClient cold(sick);
    for (int round = 0; round < 3; ++round) {  // by turns: the machine's own moods even out
      Measure(engine, warm, healthy);
      sick.disk.Hang(SICK_ALL);
      Measure(engine, warm, hanging);
      sick.disk.Heal();
    }
    CHECK(cold.Stop() == 0);
    // A call ends by its deadline.
    CHECK(cold.slowest_ms < 5 * kShort.count());
  }
  WARN(
      absl::StrFormat("G2 hits of 64 KiB, us: G3 healthy p50 %.1f p99 %.1f (%d), hanging p50 %.1f "
                      "p99 %.1f (%d)",
                      healthy.At(0.5), healthy.At(0.99), healthy.us.size(), hanging.At(0.5),
                      hanging.At(0.99), hanging.us.size()));
  CHECK(engine.wrong_bytes == 0);
  CHECK(Eventually([&] { return engine.Hits(sick.cold) == kCold; }, milliseconds(30'000)));
}

TEST_CASE("a disk that hangs is shown, kept away from, and taken back when it answers") {
  if (!CanBeSick()) return;
  SickSite sick;
  sick.Fill();
  Engine engine(sick.site, {.deadline = kShort});
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
  // Now nobody waits for it any more.
  const auto begin = steady_clock::now();
  CHECK(engine.Get(sick.cold[1]) == GetStatus::kMiss);
  CHECK_FALSE(PutDurable(engine, {10'001, kChunkBytes}));
  CHECK((e2e::kSanitized || steady_clock::now() - begin < kShort));
  {
    ColdClient cold(sick);  // memory comes and goes, but none that a stuck read may yet write to
    do {
      CHECK(engine.Hits(sick.warm) == sick.warm.size());
    } while (steady_clock::now() - began < LongHang());
    CHECK(cold.Stop() == 0);
  }
  sick.disk.Heal();
  CHECK(Eventually([&] { return sick.State() == "ok"; }, milliseconds(30'000)));
  Engine after(sick.site);
  CHECK(Eventually([&] { return after.Hits(sick.cold) == kCold; }, milliseconds(30'000)));
  CHECK(PutDurable(after, {10'002, kChunkBytes}));
  CHECK(after.wrong_bytes + engine.wrong_bytes == 0);
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
  // It gives up; the kernel keeps what is left of the process until its last I/O has ended.
  CHECK(sick.site.AwaitLog("does not answer", milliseconds(60'000)));
  sick.disk.Heal();
  CHECK(sick.site.AwaitEnd(milliseconds(30'000)).exit_status == 1);
  sick.site.Start();
  Engine after(sick.site);
  CHECK(after.Hits(sick.cold) == kCold);
  CHECK(after.wrong_bytes == 0);
}

}  // namespace kvkeep::sick
