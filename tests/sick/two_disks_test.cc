// Two disks, one of which hangs: durable puts, write-back and reads of the other go on, as fast as
// before, over a restart as well.
#include <absl/strings/str_format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/from_environment.h"
#include "tests/sick/sick_site.h"

namespace kvkeep::sick {
namespace {

constexpr client::Deadline kShort{1'000};
constexpr milliseconds kPatience{60'000};  // however busy the machine is
constexpr size_t kWriters = 4;
constexpr int kAttempts = 6;
constexpr double kQuietReadMs = 1.7;  // of a read with both disks well; quiet disks: 1.5
constexpr double kAsFast = 1.2;
// What waits for the hung disk does not count; of the chunks that are read it has half.
constexpr double kAsManyPuts = 0.5, kAsManyReads = 0.3;

struct TwoDisks {
  SickDisk hung{"320M"}, well{"320M"};
  e2e::Site site{{.g2 = "48MiB",
                  .devices = {{.name = hung.dir() + "/g3", .capacity = "192MiB"},
                              {.name = well.dir() + "/g3", .capacity = "192MiB"}},
                  .drain_timeout = "3s",
                  .local = true}};
  const std::vector<TestChunk> cold = Chunks(1, kCold, kChunkBytes);

  TwoDisks() { site.Start(); }
  ~TwoDisks() { hung.Heal(); }

  // `cold` is on the disks and not in G2. Returns how many of them are on the one that stays well.
  size_t Fill() {
    Engine engine(site);
    REQUIRE(engine.PutAll(cold, {.durable = true}));
    const uint64_t on_well = site.Status().devices(1).chunks();
    REQUIRE(site.Status().devices(0).chunks() + on_well == cold.size());
    REQUIRE(on_well > cold.size() / 4);
    REQUIRE(engine.PutAll(Chunks(5'000, 240, kChunkBytes), {.no_g3 = true}));
    REQUIRE(engine.Find(cold).g2 == 0);
    return on_well;
  }
  std::string State(int device) const { return site.Status().devices(device).state(); }
};

// Clients that put new chunks durable, for as long as they live.
class Writers {
 public:
  explicit Writers(TwoDisks& disks) {
    for (size_t writer = 0; writer < kWriters; ++writer) {
      threads_.emplace_back([this, &disks, writer] { Write(disks, writer); });
    }
  }
  ~Writers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // What was acknowledged.
  uint64_t stored() const { return stored_; }

 private:
  void Write(TwoDisks& disks, size_t writer) {
    Engine engine(disks.site, {.name = "writer", .deadline = kShort});
    for (uint64_t n = 100'000 * (writer + 1); !stop_; ++n) {
      if (PutDurable(engine, {n, 3'000})) ++stored_;
      std::this_thread::sleep_for(milliseconds(5));  // so that they do not fill the disk
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> stored_{0};
  std::vector<std::thread> threads_;
};

// What calls take that the disk which is well answers: one after the other, so each is alone.
struct CallTimes {
  Latencies puts, reads;  // in milliseconds
};

// Chunks of G3 in turn, more than G2 holds, and durable puts in between. A put or read that the
// hung disk would have to answer is none that counts.
class OneByOne {
 public:
  explicit OneByOne(TwoDisks& disks)
      : engine_(disks.site, {.name = "one", .deadline = kShort}),
        cold_(Chunks(20'000, 320, kChunkBytes)) {
    REQUIRE(Engine(disks.site).PutAll(cold_, {.durable = true}));
  }
  void Measure(std::chrono::milliseconds time, CallTimes& out) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      const uint64_t n = next_++;
      Note(out.puts.all, [&] { return PutDurable(engine_, {1'000'000 + n, 3'000}); });
      Note(out.reads.all,
           [&] { return engine_.Get(cold_[n % cold_.size()]) == client::GetStatus::kHit; });
      std::this_thread::sleep_for(milliseconds(5));  // so that puts do not fill the disk
    }
  }
  uint64_t wrong_bytes() const { return engine_.wrong_bytes; }

 private:
  template <typename Call>
  void Note(std::vector<double>& took_ms, Call call) {
    const auto begin = std::chrono::steady_clock::now();
    const bool answered = call();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (answered) took_ms.push_back(took.count());
  }

  Engine engine_;
  const std::vector<TestChunk> cold_;
  uint64_t next_ = 0;
};

// By turns, so that the machine's own moods even out.
struct Comparison {
  CallTimes well, beside_hung;
  const double share;  // a quantile: of some hundred calls the p99 is the machine's worst moment

  Comparison(TwoDisks& disks, OneByOne& calls, std::chrono::milliseconds segment, int rounds,
             double quantile)
      : share(quantile) {
    for (int round = 0; round < rounds; ++round) {
      REQUIRE(disks.site.AwaitClean());
      CallTimes warm_up;
      calls.Measure(segment / 2, warm_up);
      calls.Measure(segment, well);
      disks.hung.Hang(SICK_FLUSHES);
      // Who asks it before it is known to hang waits for it.
      CallTimes until_known;
      REQUIRE(Eventually(
          [&] {
            calls.Measure(milliseconds(1), until_known);
            return disks.State(0) == "offline";
          },
          kPatience));
      calls.Measure(segment, beside_hung);
      REQUIRE(disks.hung.hanging() > 0);
      disks.hung.Heal();
      REQUIRE(Eventually([&] { return disks.State(0) == "ok"; }, kPatience));
    }
  }
  double Ratio(Latencies CallTimes::*which) {
    return (beside_hung.*which).At(share) / (well.*which).At(share);
  }
  double Counted(Latencies CallTimes::*which) const {
    return static_cast<double>((beside_hung.*which).all.size()) /
           static_cast<double>((well.*which).all.size());
  }
  bool IsAsFast() {
    return Ratio(&CallTimes::puts) <= kAsFast && Ratio(&CallTimes::reads) <= kAsFast &&
           Counted(&CallTimes::puts) >= kAsManyPuts && Counted(&CallTimes::reads) >= kAsManyReads;
  }
  std::string ToString() {
    return absl::StrFormat(
        "beside a disk that hangs in flush, p%.0f: durable puts %.1f ms (%d), well %.1f (%d), so "
        "%.2f times; reads of G3 %.1f ms (%d), well %.1f (%d), so %.2f times",
        100 * share, beside_hung.puts.At(share), beside_hung.puts.all.size(), well.puts.At(share),
        well.puts.all.size(), Ratio(&CallTimes::puts), beside_hung.reads.At(share),
        beside_hung.reads.all.size(), well.reads.At(share), well.reads.all.size(),
        Ratio(&CallTimes::reads));
  }
};

}  // namespace

TEST_CASE("durable puts and reads of a disk take as long beside one that hangs", "[times]") {
  if (!CanBeSick()) return;
  // The figure for the record is of 60: KVKEEP_SICK_HANG_SECONDS.
  const auto seconds = FromEnvironment("KVKEEP_SICK_HANG_SECONDS", 3);
  const bool brief = seconds < 10;
  TwoDisks disks;
  OneByOne calls(disks);
  bool good = false;
  int on_a_quiet_disk = 0;
  for (int attempt = 0; attempt < kAttempts && !good; ++attempt) {
    Comparison now(disks, calls, std::chrono::seconds(seconds), brief ? 2 : 1,
                   brief ? 0.9 : 0.99);
    WARN(now.ToString());
    good = e2e::kSanitized || now.IsAsFast();
    on_a_quiet_disk += now.well.reads.At(now.share) <= kQuietReadMs ? 1 : 0;
  }
  // All writes go to the disk that is left. Where the host's own disk is the bottleneck, that
  // doubles what a read of it waits for, whatever the daemon does.
  if (!good && on_a_quiet_disk == 0) {
    WARN("skipped: reads take above " << kQuietReadMs << " ms here, with both disks well");
  } else {
    CHECK(good);
  }
  CHECK(calls.wrong_bytes() == 0);
}

TEST_CASE("one disk of two that hangs changes nothing for the other") {
  if (!CanBeSick()) return;
  const auto kinds = static_cast<uint32_t>(GENERATE(+SICK_FLUSHES, +SICK_WRITES, +SICK_ALL));
  INFO("kinds of requests that hang: " << kinds);
  TwoDisks disks;
  const size_t on_well = disks.Fill();
  Engine reader(disks.site, {.deadline = kShort});
  const uint64_t chunks_before = disks.site.Status().devices(1).chunks();
  {
    Writers writers(disks);
    REQUIRE(Eventually([&] { return writers.stored() > 20; }));
    disks.hung.Hang(kinds);
    REQUIRE(Eventually([&] { return disks.hung.hanging() > 0; }));
    // Before it is known that the disk hangs: what was under way when it began is not counted.
    const uint64_t at_first = writers.stored();
    CHECK(Eventually([&] { return writers.stored() > at_first + kWriters; }));
    CHECK(Eventually([&] { return disks.State(0) == "offline"; }, kPatience));
    const uint64_t at_last = writers.stored();
    CHECK(Eventually([&] { return writers.stored() > at_last + 100; }, kPatience));
    CHECK(disks.State(1) == "ok");
    CHECK(reader.Hits(disks.cold) == on_well);
    CHECK(disks.State(1) == "ok");
  }
  CHECK(disks.site.Status().devices(1).chunks() > chunks_before + 100);
  CHECK(disks.hung.hanging() > 0);
  disks.hung.Heal();
  CHECK(Eventually([&] { return disks.State(0) == "ok"; }, kPatience));
  CHECK(Eventually([&] { return reader.Hits(disks.cold) == kCold; }, kPatience));
  CHECK(reader.wrong_bytes == 0);
}

TEST_CASE("a daemon killed while a disk hangs serves the other one, and the first joins later") {
  if (!CanBeSick()) return;
  TwoDisks disks;
  const size_t on_well = disks.Fill();
  disks.hung.Hang(SICK_READS);  // they hold the locks of the data files after the daemon is dead
  {
    Engine reader(disks.site, {.deadline = kShort});
    reader.Hits(disks.cold);
    REQUIRE(Eventually([&] { return disks.hung.hanging() > 0; }));
  }
  disks.site.Kill();
  disks.site.awaits_joins = false;
  disks.site.Start();
  CHECK(Eventually([&] { return disks.State(1) == "ok"; }, kPatience));
  // Its locks are held; or who opens it hangs with it already.
  const std::string state = disks.State(0);
  CHECK((state == "offline" || state == "joining"));
  Engine engine(disks.site, {.deadline = kShort});
  CHECK(engine.Hits(disks.cold) == on_well);
  CHECK(PutDurable(engine, {90'000, 3'000}));
  CHECK(disks.hung.hanging() > 0);
  disks.hung.Heal();
  CHECK(Eventually([&] { return disks.State(0) == "ok"; }, kPatience));
  CHECK(Eventually([&] { return engine.Hits(disks.cold) == kCold; }, kPatience));
  CHECK(engine.wrong_bytes == 0);
}

}  // namespace kvkeep::sick
