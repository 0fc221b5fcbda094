#include "tiers/store/life_samples.h"

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_internal::LifeSamples;

constexpr size_t kG2 = 0, kG3 = 1;

// Returns one whose bits choose it up to a sample of one in 2^20.
Fingerprint Chunk(uint64_t number) { return Fingerprint(number << 44 | number); }

void Want(LifeSamples& life, Fingerprint chunk, MonotonicTime now) {
  const EvictionPolicy::ChainLink link{.fingerprint = chunk};
  life.OnWanted(std::span(&link, 1), now);
}

// Returns the bucket of the only value: its bound in seconds; -1 for none.
double OnlyBucket(const HistogramCounts& counts) {
  if (counts.count() != 1) return -1;
  size_t i = 0;
  while (counts.counts[i] == 0) ++i;
  return static_cast<double>(counts.bounds->bound(i)) / 1e9;
}

}  // namespace

TEST_CASE("of a chunk that is evicted and wanted again all three times are noted, by tier") {
  LifeSamples life(1);
  const Fingerprint chunk = Chunk(1);
  life.OnStored(chunk, LifeSamples::kG2, seconds(10));
  life.OnStored(chunk, LifeSamples::kG3, seconds(11));
  Want(life, chunk, seconds(50));
  life.OnEvicted(chunk, LifeSamples::kG2, seconds(54));
  LifeSnapshot now = life.snapshot();
  CHECK(OnlyBucket(now.lifetime[kG2]) == 60);  // 44 s
  CHECK(OnlyBucket(now.idle[kG2]) == 5);       // 4 s
  CHECK(now.lifetime[kG3].count() == 0);
  CHECK(now.sampled_chunks == 1);
  Want(life, chunk, seconds(64));
  now = life.snapshot();
  CHECK(OnlyBucket(now.wanted_again[kG2]) == 15);  // 10 s
  CHECK(now.wanted_again[kG3].count() == 0);
  Want(life, chunk, seconds(65));  // asked for again, but as part of the same return
  CHECK(life.snapshot().wanted_again[kG2].count() == 1);
  life.OnEvicted(chunk, LifeSamples::kG3, seconds(100));
  Want(life, chunk, hours(10));
  now = life.snapshot();
  CHECK(OnlyBucket(now.lifetime[kG3]) == 300);
  CHECK(OnlyBucket(now.idle[kG3]) == 60);
  CHECK(OnlyBucket(now.wanted_again[kG3]) == 12 * 3600);
  CHECK(life.size() == 0);  // nothing more to learn of it
}

TEST_CASE("what is deleted was not evicted, and is not missed") {
  LifeSamples life(1);
  life.OnStored(Chunk(1), LifeSamples::kG2, seconds(1));
  life.OnRemoved(Chunk(1), LifeSamples::kG2);
  Want(life, Chunk(1), seconds(2));
  life.OnEvicted(Chunk(2), LifeSamples::kG2, seconds(2));  // was never seen
  const LifeSnapshot now = life.snapshot();
  CHECK(now.lifetime[kG2].count() == 0);
  CHECK(now.wanted_again[kG2].count() == 0);
  CHECK(life.size() == 0);
}

TEST_CASE("the sample is bounded: the oldest ghosts are forgotten, then every second chunk") {
  constexpr uint64_t kMany = 5 * LifeSamples::kMost;
  LifeSamples life(1);
  for (uint64_t i = 1; i <= kMany; ++i) {
    life.OnStored(Chunk(i), LifeSamples::kG2, seconds(i));
    life.OnEvicted(Chunk(i), LifeSamples::kG2, seconds(i));
    REQUIRE(life.size() <= LifeSamples::kMost);
  }
  CHECK(life.snapshot().one_in == 1);  // ghosts cost no chunk its place
  Want(life, Chunk(1), seconds(kMany));
  CHECK(life.snapshot().wanted_again[kG2].count() == 0);
  Want(life, Chunk(kMany), seconds(kMany));
  CHECK(life.snapshot().wanted_again[kG2].count() == 1);
  for (uint64_t i = kMany; i < 2 * kMany; ++i) {
    life.OnStored(Chunk(i << 20), LifeSamples::kG2, seconds(i));
    REQUIRE(life.size() <= LifeSamples::kMost);
    REQUIRE(life.snapshot().sampled_chunks <= life.size());
  }
  const LifeSnapshot now = life.snapshot();
  CHECK(now.one_in >= kMany / LifeSamples::kMost);
  CHECK(now.one_in <= 8 * kMany / LifeSamples::kMost);
  CHECK(now.sampled_chunks > 0);
  CHECK(now.sampled_chunks <= LifeSamples::kMost / 2);
}

TEST_CASE("a chunk that was evicted twice is forgotten by its second eviction's age") {
  LifeSamples life(1);
  const Fingerprint twice = Chunk(1 << 20);
  life.OnStored(twice, LifeSamples::kG2, seconds(1));
  life.OnEvicted(twice, LifeSamples::kG2, seconds(2));
  for (uint64_t i = 1; i < LifeSamples::kMost; ++i) {
    if (i == LifeSamples::kMost / 2) {
      life.OnStored(twice, LifeSamples::kG2, seconds(3));
      life.OnEvicted(twice, LifeSamples::kG2, seconds(4));
    }
    life.OnStored(Chunk(i), LifeSamples::kG2, seconds(1));
    life.OnEvicted(Chunk(i), LifeSamples::kG2, seconds(2));
  }
  // Two more: its first eviction is the oldest one, its own is not.
  for (const uint64_t i : {LifeSamples::kMost, LifeSamples::kMost + 1}) {
    life.OnStored(Chunk(i), LifeSamples::kG2, seconds(5));
    life.OnEvicted(Chunk(i), LifeSamples::kG2, seconds(6));
  }
  Want(life, twice, seconds(7));
  CHECK(life.snapshot().wanted_again[kG2].count() == 1);
}

TEST_CASE("the store follows its chunks through both tiers") {
  WorldOptions options = SmallWorld();
  options.store.life_sample_one_in = 1;
  StoreTester store(options);
  REQUIRE(store.Put(1) == "stored");
  store.Pass(seconds(20));
  REQUIRE(store.Where(1) == "23");
  LifeSnapshot now = store.store().snapshot().life;
  const HistogramCounts written = store.store().snapshot().write_back_age;
  CHECK(written.count() == 1);
  CHECK(written.sum < 1'000'000'000);  // at once
  CHECK(now.sampled_chunks == 1);
  store.FloodG2();
  REQUIRE(store.Where(1) == "3");  // asked for at once
  now = store.store().snapshot().life;
  CHECK(now.lifetime[kG2].count() >= 1);
  CHECK(now.lifetime[kG2].sum >= 20'000'000'000);
  CHECK(now.wanted_again[kG2].count() == 1);
  const uint64_t before = now.lifetime[kG2].count();
  REQUIRE(store.Get(1) == "hit");
  CHECK(store.Delete({1}) == 1);
  store.Settle();
  store.Lookup({1});
  now = store.store().snapshot().life;
  CHECK(now.wanted_again[kG3].count() == 0);  // deleted, not evicted
  CHECK(now.lifetime[kG2].count() >= before);
}

TEST_CASE("a read without a lookup asks for a chunk as well") {
  WorldOptions options = SmallWorld();
  options.store.life_sample_one_in = 1;
  StoreTester store(options);
  REQUIRE(store.Put(1, 4096, {.no_g3 = true}) == "stored");
  store.FloodG2();
  REQUIRE(store.Get(1) == "miss");
  CHECK(store.store().snapshot().life.wanted_again[kG2].count() == 1);
}

TEST_CASE("a sample is one in a power of two") {
  StoreOptions options;
  options.life_sample_one_in = 3;
  CHECK(options.Validate().message() == "life_sample_one_in is 3, it must be a power of two");
  options.life_sample_one_in = 0;
  CHECK_FALSE(options.Validate().ok());
}

}  // namespace kvkeep
