// An image beyond the node is written anew before it expires there, if it is used.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"
#include "tiers/store/remote_ages.h"

namespace kvkeep {
namespace {

using std::chrono::hours;
using store_internal::RemoteAges;

constexpr hours kLifetime{8};

WorldOptions WithExpiry() {
  WorldOptions options = SmallWorld();
  options.remote = true;
  options.store.remote_lifetime = kLifetime;
  return options;
}

struct Aging {
  explicit Aging(const WorldOptions& options = WithExpiry()) : s(options) { Keep(); }

  // Acts as a store that knows conditions.
  void Keep() { s.world.remote().keeps_existing = true; }
  void Age(hours by) {
    s.world.clock().Advance(by);
    s.Settle();
  }
  void Use(uint64_t name) {
    s.Touch({name});
    s.Settle();
  }
  void KillAndStart() {
    s.KillAndStart();
    Keep();
  }
  RemoteCounters counters() { return *s.store().snapshot().remote; }
  // Counts of requests to the source: ages, writes, writes that replace.
  std::string Asked() {
    const MemoryRemoteSource& remote = s.world.remote();
    return absl::StrCat(remote.ages_asked, " ", remote.writes, " ", remote.replacing_writes);
  }

  StoreTester s;
};

ChunkId Named(uint64_t name) { return {NamespaceDigest{}, MakeKey(name), PartId(0)}; }

}  // namespace

TEST_CASE("an image is due from half of its lifetime on, and long after") {
  const RemoteAges ages(kLifetime);
  const MonotonicTime start = hours(1);
  for (int minutes = 0; minutes < 31 * 8 * 60; minutes += 7) {
    const auto age = std::chrono::minutes(minutes);
    const bool due = RemoteAges::IsDue(ages.At(start), ages.At(start + age));
    if (age <= kLifetime / 2) CHECK_FALSE(due);
    if (age >= kLifetime / 8 * 5) CHECK(due);
  }
  CHECK(RemoteAges::IsDue(RemoteAges::kUnknown, ages.At(start)));
  CHECK_FALSE(RemoteAges::IsDue(RemoteAges::kUnderWay, ages.At(start)));
  CHECK_FALSE(RemoteAges::IsDue(RemoteAges::kNever, ages.At(start)));
  // Older than the clock.
  CHECK(ages.Of(hours(3), hours(1)) == ages.At(-hours(2)));
  CHECK(ages.Of(hours(4), hours(1)) == RemoteAges::kUnknown);
  CHECK_FALSE(RemoteAges(hours(0)).on());
}

TEST_CASE("so many ages are asked for at once, and so many wait") {
  RemoteAges ages(kLifetime);
  for (uint64_t i = 0; i < RemoteAges::kMostQueued; ++i) CHECK(ages.Offer(Named(i)));
  CHECK_FALSE(ages.Offer(Named(0)));
  for (uint64_t i = 0; i < RemoteAges::kMostAsked; ++i) CHECK(ages.Next() == Named(i));
  CHECK_FALSE(ages.MayAsk());
  ages.End();
  CHECK(ages.MayAsk());
}

TEST_CASE("what is used when its image is older than half its lifetime is written anew, once") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  CHECK(a.s.Put(2) == "stored");
  a.s.Settle();
  CHECK(a.Asked() == "0 2 0");
  a.Age(hours(3));
  a.Use(1);
  CHECK(a.Asked() == "0 2 0");
  a.Age(hours(2));
  a.Use(1);
  CHECK(a.Asked() == "1 2 1");
  CHECK(a.s.world.bucket_times()[a.s.Id(1)] >= hours(5));
  CHECK(a.s.world.bucket_times()[a.s.Id(2)] < hours(1));  // nobody used it
  a.Use(1);
  CHECK(a.Asked() == "1 2 1");
  for (int i = 0; i < 5; ++i) {
    a.Age(hours(1));
    a.Use(1);
  }
  CHECK(a.Asked() == "2 2 2");
  CHECK(a.counters().aged_chunks == 2);
  CHECK(a.counters().refreshed_chunks == 2);
  CHECK(a.counters().refreshed_bytes == 8192);
  CHECK(a.counters().written_chunks == 2);
  CHECK(a.counters().offered_chunks == 2);
}

TEST_CASE("a lookup is a use, and several ask once") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(5));
  a.s.Lookup({1}, LeaseMode::kNone);
  a.s.Lookup({1}, LeaseMode::kNone);
  a.s.Settle();
  CHECK(a.Asked() == "1 1 1");
}

TEST_CASE("what another node has written anew is left alone until that is old") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(4));
  a.s.world.bucket_times()[a.s.Id(1)] = a.s.world.clock().Now();
  a.Age(hours(2));
  a.Use(1);
  a.Use(1);
  CHECK(a.Asked() == "1 1 0");
  CHECK(a.counters().young_chunks == 1);
  a.Age(hours(3));
  a.Use(1);
  CHECK(a.Asked() == "2 1 1");
}

TEST_CASE("what has expired is written again when it is used, unless another node does it first") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(9));
  a.s.world.bucket().clear();
  a.Use(1);
  CHECK(a.Asked() == "1 2 0");
  CHECK(a.s.world.bucket().size() == 1);
  CHECK(a.counters().written_chunks == 2);
  CHECK(a.counters().refreshed_chunks == 0);
}

TEST_CASE("an image that was there before has an unknown age, so it is asked for") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  CHECK(a.s.Delete({1}) == 1);
  const auto there = a.s.world.bucket();
  a.s.Settle();
  a.s.world.bucket() = there;
  a.Age(hours(2));
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  CHECK(a.Asked() == "0 2 0");
  CHECK(a.counters().failed_writes == 0);
  a.Use(1);
  CHECK(a.Asked() == "1 2 0");
  a.Age(hours(3));  // of the image, five
  a.Use(1);
  CHECK(a.Asked() == "2 2 1");
}

TEST_CASE("after a restart ages are asked for once") {
  Aging a;
  for (uint64_t name = 1; name <= 3; ++name) CHECK(a.s.Put(name) == "stored");
  a.s.Settle();
  a.Age(hours(1));
  a.KillAndStart();
  for (uint64_t name = 1; name <= 3; ++name) CHECK(a.s.Get(name) == "hit");
  for (int i = 0; i < 2; ++i) {
    a.s.Touch({1, 2, 3});
    a.s.Settle();
  }
  CHECK(a.Asked() == "3 0 0");
  CHECK(a.counters().young_chunks == 3);
}

TEST_CASE("a chunk that was only read from there is written anew when its image is old") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  CHECK(a.s.Put(2) == "stored");
  a.s.Settle();
  a.Age(hours(5));
  a.s.world.bucket_times()[a.s.Id(2)] = hours(4);
  a.s.world.Kill();
  a.s.world.LoseArena();
  a.s.world.SetAttached(0, false);
  a.s.world.Start();
  a.s.Connect();
  a.Keep();
  const std::vector<ChunkKey> keys = {MakeKey(1), MakeKey(2)};
  const PartId part(0);
  uint64_t came = 0;
  a.s.store().Recall(a.s.session, {a.s.ns, keys, std::span(&part, 1)},
                     [&](const absl::StatusOr<uint64_t>& is) { came = is.value(); });
  a.s.Settle();
  REQUIRE(came == 2);
  CHECK(a.Asked() == "0 0 0");
  a.s.Touch({1, 2});
  a.s.Settle();
  CHECK(a.Asked() == "1 0 1");  // of the second one the age is known
}

TEST_CASE("what is not to go beyond the node is not asked about") {
  Aging a;
  CHECK(a.s.Put(1, 4096, {.no_g3 = true}) == "stored");
  a.s.Settle();
  a.Age(hours(9));
  a.Use(1);
  CHECK(a.Asked() == "0 0 0");
}

TEST_CASE("nothing is written anew without a lifetime, or when nothing is written there") {
  WorldOptions options = WithExpiry();
  const bool off = GENERATE(true, false);
  if (off) options.store.remote_lifetime = hours(0);
  Aging a(options);
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  options.store.remote_write_bytes_per_second = off ? 1 << 30 : 0;
  REQUIRE(a.s.store().SetLimits(options.store).ok());
  a.Age(hours(9));
  a.Use(1);
  CHECK(a.Asked() == "0 1 0");
  CHECK(a.counters().aged_chunks == 0);
}

TEST_CASE("who gets no answer asks again at the next use") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(5));
  a.s.world.remote().set_faults({.read_error = 1});
  a.Use(1);
  CHECK(a.Asked() == "1 1 0");
  CHECK(a.counters().dropped_refreshes == 1);
  a.s.world.remote().set_faults({.write_error = 1});
  a.Use(1);
  CHECK(a.counters().failed_writes == 1);
  a.s.world.remote().set_faults({});
  a.Use(1);
  CHECK(a.Asked() == "3 1 2");
  CHECK(a.counters().refreshed_chunks == 1);
}

TEST_CASE("while the source has been asked enough, ages wait to be asked for") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(5));
  a.s.world.remote().asks = false;
  a.s.Touch({1});
  a.s.RunAll();
  CHECK(a.Asked() == "0 1 0");
  a.s.world.remote().asks = true;
  a.s.Pass(std::chrono::seconds(1));
  CHECK(a.Asked() == "1 1 1");
}

TEST_CASE("a chunk that is deleted while its age is asked for is not written") {
  Aging a;
  CHECK(a.s.Put(1) == "stored");
  a.s.Settle();
  a.Age(hours(5));
  a.s.Touch({1});
  CHECK(a.s.Delete({1}) == 1);
  a.s.Settle();
  CHECK(a.s.world.bucket().empty());
  CHECK(a.counters().dropped_refreshes == 1);
}

}  // namespace kvkeep
