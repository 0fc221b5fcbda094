#include "tiers/store/chunk_table.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"

namespace kvkeep::store_internal {
namespace {

ChunkId Id(uint64_t name) { return {{}, MakeKey(name), PartId(static_cast<uint32_t>(name % 3))}; }

}  // namespace

TEST_CASE("a table under random changes finds exactly the chunks that are there") {
  const uint64_t seed = 20261121;
  INFO("seed " << seed);
  SeededRandom random(seed);
  constexpr uint64_t kNames = 6000;
  ChunkTable table(4000, random.NextU64());
  std::map<uint64_t, ChunkSlot> model;
  std::vector<ChunkSlot> detached;
  std::set<ChunkSlot> slots;  // in use
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t name = random.Below(kNames);
    const auto known = model.find(name);
    REQUIRE(table.Find(Id(name)) == (known == model.end() ? kNoSlot : known->second));
    if (known == model.end()) {
      const bool full = table.full();
      REQUIRE(full == (slots.size() == 4000));
      const ChunkSlot slot = table.Create(Id(name), {.payload_bytes = 1});
      REQUIRE((slot == kNoSlot) == full);
      if (!full) {
        REQUIRE(slots.insert(slot).second);
        REQUIRE(table.at(slot).pins == 0);
        model[name] = slot;
      }
    } else if (random.Chance(0.5)) {
      table.Detach(known->second);
      detached.push_back(known->second);
      model.erase(known);
    } else if (random.Chance(0.5)) {
      table.Destroy(known->second);
      slots.erase(known->second);
      model.erase(known);
    }
    while (!detached.empty() && random.Chance(0.6)) {
      table.Destroy(detached.back());
      slots.erase(detached.back());
      detached.pop_back();
    }
    REQUIRE(table.size() == slots.size());
  }
}

TEST_CASE("finding many chunks at once is finding each of them") {
  SeededRandom random(1);
  ChunkTable table(100'000, random.NextU64());
  for (uint64_t name = 0; name < 20'000; name += 2) {
    REQUIRE(table.Create(Id(name), {.payload_bytes = 1}) != kNoSlot);
  }
  for (const size_t keys : {1, 2, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    std::vector<ChunkKey> wanted;
    for (size_t i = 0; i < keys; ++i) wanted.push_back(MakeKey(random.Below(20'000)));
    const std::vector<PartId> parts = {PartId(0), PartId(2)};
    std::vector<ChunkTable::Link> found(2 * keys);
    table.FindAll({}, wanted, parts, found);
    for (size_t i = 0; i < found.size(); ++i) {
      const ChunkId id{{}, wanted[i / 2], parts[i % 2]};
      REQUIRE(found[i].slot == table.Find(id));
      REQUIRE(found[i].fingerprint == table.fingerprint(id));
    }
  }
}

// The maps double when two thirds are taken, so a chunk has 12 to 24 bytes; and while some have
// doubled and others have not, what the former left is not yet all of use.
TEST_CASE("the table's maps take no more than 27 bytes a chunk, right after a growth too") {
  constexpr uint64_t kChunks = 200'000;
  ChunkTable table(kChunks, 7);
  double most = 0;
  for (uint64_t name = 1; name <= kChunks; ++name) {
    REQUIRE(table.Create({{}, MakeKey(name), PartId(0)}, {.payload_bytes = 1}) != kNoSlot);
    if (name < 20'000) continue;  // few chunks have their first arrays
    most = std::max(most, static_cast<double>(table.map_bytes()) / static_cast<double>(name));
  }
  CHECK(most > 20);  // a growth was on the way
  CHECK(most <= 27);
}

}  // namespace kvkeep::store_internal
