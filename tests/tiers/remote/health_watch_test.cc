#include "tiers/remote/health_watch.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/stored_page.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;
using Health = ObjectStoreHealth;

// A bucket that is watched once a second, and the reports about it.
struct Watched {
  explicit Watched(const ObjectFaults& faults = {}) {
    auto made = std::make_unique<MemoryObjectStore>(&objects, &executor, &clock, 1, faults);
    store = made.get();
    const auto fleet = CountedFrom<std::array<std::byte, 32>>(7);
    source = std::make_unique<BucketSource>(BucketSourceOptions{},
                                            FleetKeys::Derive(Secret(fleet), "fleet"),
                                            std::move(made), &clock, &random);
  }
  void Tick(int times = 1) {
    for (int i = 0; i < times; ++i) {
      if (const auto said = watch.Tick(*source)) told.push_back(*said);
      executor.RunAll();
      clock.Advance(seconds(1));
    }
  }
  Health health() const { return watch.health(*source); }

  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  MemoryObjects objects;
  MemoryObjectStore* store = nullptr;
  HealthWatch watch{&clock};
  std::unique_ptr<BucketSource> source;
  std::vector<Health> told;
};

Health Wrong(Health::State state, const char* code, seconds retry_in) {
  return {.state = state,
          .error = {code, "says the server", "7"},
          .what_to_do = "mend it",
          .retry_in = retry_in};
}

}  // namespace

TEST_CASE("a source is asked once after the start, and told to be well when it answered") {
  Watched w;
  CHECK(w.store->gets == 0);
  w.Tick();
  CHECK(w.told.empty());  // nothing is known yet
  CHECK(w.store->gets == 1);
  CHECK(w.store->got[0].range == ByteRange{0, kHeaderBytes});
  w.Tick(100);
  REQUIRE(w.told.size() == 1);
  CHECK(w.told[0].writable());
  CHECK(w.store->gets == 1);
  CHECK(w.watch.counters().checks == 1);
  CHECK(w.watch.counters().failed_checks == 0);
  CHECK(w.source->counters().probes == 0);  // which are for chunks
}

TEST_CASE("a wrong bucket is told once, and stays wrong until an answer proves otherwise") {
  Watched w;
  w.Tick(3);
  w.told.clear();
  w.store->set_health(Wrong(Health::State::kMisconfigured, "NoSuchBucket", seconds(60)));
  w.store->set_faults({.misconfigured = 1});
  w.Tick(60);
  REQUIRE(w.told.size() == 1);
  CHECK(w.told[0].state == Health::State::kMisconfigured);
  CHECK(w.told[0].error.code == "NoSuchBucket");
  CHECK(w.told[0].what_to_do == "mend it");
  CHECK(w.store->gets == 1);  // it is not asked during its pause
  // The pause is over, which proves nothing.
  w.store->set_health({});
  CHECK(w.health().state == Health::State::kMisconfigured);
  w.Tick();
  CHECK(w.store->gets == 2);
  CHECK(w.health().error.code == "NoSuchBucket");
  CHECK(w.told.size() == 1);
  // The operator has repaired it.
  w.store->set_faults({});
  w.Tick(4);
  CHECK(w.store->gets == 3);
  CHECK(w.health().state == Health::State::kWell);
  REQUIRE(w.told.size() == 2);
  CHECK(w.told[1].writable());
}

TEST_CASE("checks that fail again and again count, though the store takes itself to be well") {
  Watched w({.broken = 1});
  w.Tick(3);  // two checks, as they are two seconds apart
  CHECK(w.store->gets == 2);
  CHECK(w.health().state == Health::State::kWell);
  CHECK(w.told.empty());
  w.Tick(4);
  CHECK(w.health().state == Health::State::kAway);
  CHECK(w.health().error.code == std::string(NameOf(ObjectOutcome::kBroken)));
  CHECK(w.told.size() == 1);
  CHECK(w.watch.counters().failed_checks >= HealthWatch::kFailures);
  w.store->set_faults({.misconfigured = 1});
  w.Tick(4);
  CHECK(w.health().state == Health::State::kMisconfigured);
  w.store->set_faults({});
  w.Tick(4);
  CHECK(w.health().state == Health::State::kWell);
  CHECK(w.told.size() == 3);
}

TEST_CASE("what takes no writes is told of, and when it takes them again") {
  Watched w;
  w.Tick(3);
  Health full;
  full.takes_puts = false;
  full.error.code = "QuotaExceeded";
  w.store->set_health(full);
  w.Tick(10);
  w.store->set_health({});
  w.Tick(10);
  REQUIRE(w.told.size() == 3);
  CHECK((w.told[1].readable() && !w.told[1].writable()));
  CHECK(w.told[2].writable());
  CHECK(w.store->gets == 1);  // reads were never in doubt
}

TEST_CASE("one that comes and goes between two looks is told of by its last state alone") {
  Watched w;
  w.Tick(3);
  w.store->set_health(Wrong(Health::State::kAway, "", seconds(5)));
  w.store->set_health({});
  w.Tick(3);
  CHECK(w.told.size() == 1);
}

TEST_CASE("a check under way when the source goes is answered to nobody") {
  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  MemoryObjects objects;
  auto watch = std::make_unique<HealthWatch>(&clock);
  const auto fleet = CountedFrom<std::array<std::byte, 32>>(7);
  auto source = std::make_unique<BucketSource>(
      BucketSourceOptions{}, FleetKeys::Derive(Secret(fleet), "fleet"),
      std::make_unique<MemoryObjectStore>(&objects, &executor, &clock), &clock, &random);
  CHECK_FALSE(watch->Tick(*source).has_value());
  watch.reset();
  source.reset();
  executor.RunAll();
}

}  // namespace kvkeep
