#include "tiers/remote/fleet_epoch.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/stored_page.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

// Returns the key of an epoch, another one for each number.
Secret EpochKey(uint8_t number) {
  const auto bytes = CountedFrom<std::array<std::byte, 32>>(number);
  return Secret(bytes);
}

std::vector<Secret> EpochKeys(std::initializer_list<uint8_t> numbers) {
  std::vector<Secret> keys;
  for (const uint8_t number : numbers) keys.push_back(EpochKey(number));
  return keys;
}

// The place of a fleet, and its nodes' clock.
struct EpochPlace {
  ManualClock clock;
  ManualExecutor executor;
  MemoryObjects objects;
};

struct EpochNode {
  EpochNode(EpochPlace* at, std::initializer_list<uint8_t> keys, uint64_t seed = 1)
      : place(*at), store(&at->objects, &at->executor, &at->clock, seed),
        epoch(EpochKeys(keys), &store, &at->clock) {}
  void Tick() {
    epoch.Tick();
    place.executor.RunAll();
  }
  // Returns "" while nothing was reported.
  std::string Begin() {
    std::string told;
    epoch.Begin([&told](const absl::Status& status) {
      told = absl::StatusCodeToString(status.code());
    });
    place.executor.RunAll();
    return told;
  }

  EpochPlace& place;
  MemoryObjectStore store;
  FleetEpoch epoch;
};

}  // namespace

TEST_CASE("a new epoch is every node's within a minute, and one's that starts later") {
  EpochPlace place;
  EpochNode a(&place, {1}, 1), b(&place, {1}, 2);
  CHECK_FALSE(a.epoch.certain());
  for (EpochNode* node : {&a, &b}) {
    node->Tick();
    CHECK(node->epoch.certain());
    CHECK(node->epoch.number() == 0);
  }
  CHECK(place.objects.now.empty());  // nothing was begun
  CHECK(a.Begin() == "OK");
  const uint64_t begun = a.epoch.number();
  CHECK(begun > 0);
  for (int second = 0; second < 16; ++second) {
    place.clock.Advance(seconds(1));
    b.Tick();
  }
  CHECK(b.epoch.number() == begun);
  EpochNode later(&place, {1}, 3);
  later.Tick();
  CHECK(later.epoch.number() == begun);
  CHECK(later.epoch.certain());
  CHECK(b.Begin() == "OK");
  CHECK(b.epoch.number() > begun);
}

TEST_CASE("a node that cannot read the epoch is not certain of it, until it can") {
  EpochPlace place;
  EpochNode node(&place, {1});
  node.Tick();
  node.store.set_faults({.broken = 1});
  const MonotonicTime begun = place.clock.Now();
  while (node.epoch.certain()) {
    REQUIRE(place.clock.Now() < begun + seconds(60));
    place.clock.Advance(seconds(1));
    node.Tick();
  }
  CHECK(place.clock.Now() == begun + FleetEpoch::kCertainFor);
  CHECK(node.epoch.counters().failed_reads > 3);
  node.store.set_faults({});
  for (int second = 0; second < 3; ++second) {
    place.clock.Advance(seconds(1));
    node.Tick();
  }
  CHECK(node.epoch.certain());
}

TEST_CASE("an epoch that is gone, put back or not ours is written again, and does not shrink") {
  EpochPlace place;
  EpochNode node(&place, {1});
  node.Tick();
  REQUIRE(node.Begin() == "OK");
  const std::string name = FleetEpoch::NameOf(EpochKey(1));
  REQUIRE(place.objects.now.contains(name));
  const std::string former = place.objects.now[name]->body;
  REQUIRE(node.Begin() == "OK");
  const std::string latest = place.objects.now[name]->body;
  const uint64_t number = node.epoch.number();
  uint64_t bad = 0;
  SECTION("gone") { place.objects.now.clear(); }
  SECTION("put back") { place.objects.Publish(name, former, UnixSeconds(1)); }
  SECTION("not ours") {
    std::string other = latest;
    other[9] ^= 1;
    place.objects.Publish(name, other, UnixSeconds(1));
    bad = 1;
  }
  SECTION("cut off") {
    place.objects.Publish(name, latest.substr(0, 20), UnixSeconds(1));
    bad = 1;
  }
  SECTION("too long") {
    place.objects.Publish(name, latest + latest, UnixSeconds(1));
    bad = 1;
  }
  place.clock.Advance(FleetEpoch::kEvery);
  node.Tick();
  CHECK(node.epoch.number() == number);
  CHECK(node.epoch.certain());
  CHECK(place.objects.now[name]->body == latest);
  CHECK(node.epoch.counters().bad_objects == bad);
}

TEST_CASE("a node begins no epoch that it cannot write, and goes on with what the fleet has") {
  EpochPlace place;
  EpochNode node(&place, {1}, 1), other(&place, {1}, 2);
  node.Tick();
  SECTION("nothing answers") {
    node.store.set_faults({.broken = 1});
    CHECK(node.Begin() == "UNAVAILABLE");
  }
  SECTION("nothing is written there") {
    node.store.set_faults({.full = 1});
    CHECK(node.Begin() == "RESOURCE_EXHAUSTED");
    CHECK(node.epoch.counters().failed_writes == 1);
  }
  CHECK(node.epoch.number() == 0);
  CHECK(place.objects.now.empty());
  CHECK(node.epoch.certain());
}

TEST_CASE("a node that has read nothing, and whose clock is behind, begins a larger epoch") {
  EpochPlace place;
  EpochNode before(&place, {1}, 1);
  REQUIRE(before.Begin() == "OK");
  const uint64_t number = before.epoch.number();
  place.clock.StepUnix(-std::chrono::hours(1));
  EpochNode late(&place, {1}, 2);
  REQUIRE(late.Begin() == "OK");
  CHECK(late.epoch.number() > number);
}

TEST_CASE("a new epoch that another node wrote over is not called begun") {
  EpochPlace place;
  EpochNode node(&place, {1}, 1);
  REQUIRE(node.Begin() == "OK");
  const std::string name = FleetEpoch::NameOf(EpochKey(1));
  const std::string former = place.objects.now[name]->body;
  place.clock.Advance(seconds(1));
  std::string told;
  node.epoch.Begin([&told](const absl::Status& status) {
    told = absl::StatusCodeToString(status.code());
  });
  while (place.objects.now[name]->body == former) {
    REQUIRE_FALSE(place.executor.idle());
    place.executor.RunOne();
  }
  place.objects.Publish(name, former, UnixSeconds(1));
  place.executor.RunAll();
  CHECK(told == "UNAVAILABLE");
}

TEST_CASE("a damaged epoch keeps a node away that knows none, until one is begun") {
  EpochPlace place;
  place.objects.Publish(FleetEpoch::NameOf(EpochKey(1)), "nothing", UnixSeconds(1));
  EpochNode node(&place, {1});
  node.Tick();
  CHECK_FALSE(node.epoch.certain());
  CHECK(node.epoch.error().code == "NotAnEpoch");
  CHECK(node.Begin() == "OK");
  CHECK(node.epoch.certain());
  CHECK(node.epoch.error().code.empty());
}

TEST_CASE("an epoch is written again before a lifecycle rule may take it") {
  EpochPlace place;
  EpochNode node(&place, {1});
  REQUIRE(node.Begin() == "OK");
  const std::string name = FleetEpoch::NameOf(EpochKey(1));
  const uint64_t writes = node.epoch.counters().writes;
  // The store's own clock.
  const auto tick_after = [&](MonotonicTime time) {
    place.clock.Advance(time);
    node.store.date = UnixSeconds(static_cast<int64_t>(place.clock.UnixMicros() / 1'000'000));
    node.Tick();
  };
  tick_after(FleetEpoch::kRenewedAfter - seconds(60));
  CHECK(node.epoch.counters().writes == writes);
  tick_after(seconds(60));
  CHECK(node.epoch.counters().writes == writes + 1);
  tick_after(FleetEpoch::kEvery);
  CHECK(node.epoch.counters().writes == writes + 1);
}

TEST_CASE("nodes with another key of the fleet have the same epoch while one of them knows both") {
  EpochPlace place;
  EpochNode before(&place, {1}, 1), both(&place, {2, 1}, 2), after(&place, {2}, 3);
  for (EpochNode* node : {&before, &both, &after}) node->Tick();
  CHECK(before.Begin() == "OK");
  place.clock.Advance(FleetEpoch::kEvery);
  both.Tick();
  CHECK(both.epoch.number() == before.epoch.number());
  after.Tick();
  CHECK(after.epoch.number() == before.epoch.number());
}

TEST_CASE("what was chosen before an epoch began is not found in it, nor left by a removal") {
  EpochPlace place;
  EpochNode node(&place, {1});
  node.Tick();
  SeededRandom random(1);
  auto made = std::make_unique<MemoryObjectStore>(&place.objects, &place.executor, &place.clock);
  BucketSource source({.begun = &node.epoch}, KeysOf(0), std::move(made), &place.clock, &random);
  const auto write = [&](Image& image, uint64_t epoch) {
    absl::Status told = absl::UnknownError("not told");
    source.Write({image.id, image.shape, image.header(), image.memory(),
                  [&told](absl::Status status) { told = std::move(status); }, false, epoch});
    place.executor.RunAll();
    return told;
  };
  const auto is_there = [&](const ChunkId& id) {
    bool there = false;
    source.Find({id}, RemoteSource::Wanted::kLeadingRun, MonotonicTime::max(),
                [&there](RemoteSource::Found found) { there = found[0].has_value(); });
    place.executor.RunAll();
    return there;
  };
  Image before = Image::Make(source, Chunk(1), 10'000, 1);
  Image after = Image::Make(source, Chunk(2), 10'000, 2);
  const uint64_t chosen = source.epoch();
  REQUIRE(node.Begin() == "OK");
  CHECK(write(before, chosen).ok());
  CHECK(write(after, source.epoch()).ok());
  CHECK_FALSE(is_there(before.id));
  CHECK(is_there(after.id));

  // An epoch begins while an image is removed: it may have been written in that.
  absl::Status removed = absl::UnknownError("not told");
  const auto note = [&removed](absl::Status status) { removed = std::move(status); };
  source.Remove(after.id, note);
  REQUIRE(place.executor.size() == 1);
  std::string begun;
  node.epoch.Begin([&begun](const absl::Status& status) { begun = status.ToString(); });
  while (place.executor.size() > 1) place.executor.RunOne(1);
  CHECK(begun == "OK");
  place.executor.RunAll();
  CHECK(absl::IsUnavailable(removed));
  source.Remove(after.id, note);
  place.executor.RunAll();
  CHECK(removed.ok());
}

}  // namespace kvkeep
