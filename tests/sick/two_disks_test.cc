// Two disks, one of which hangs: durable puts, write-back and reads of the other go on, over a
// restart as well.
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/sick/sick_site.h"

namespace kvkeep::sick {
namespace {

constexpr client::Deadline kShort{1'000};
constexpr milliseconds kPatience{60'000};  // however busy the machine is
constexpr size_t kWriters = 4;

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

}  // namespace

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
