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
  ChunkTable table(std::make_shared<SlotArrays>(4000), random.NextU64());
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
  ChunkTable table(std::make_shared<SlotArrays>(100'000), random.NextU64());
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

TEST_CASE("chunks whose hashes begin alike are told apart") {
  constexpr uint32_t kChunks = 250'000;  // some pairs of these have the same tag
  ChunkTable table(std::make_shared<SlotArrays>(kChunks), 7);
  std::map<uint64_t, int> with_tag;
  for (uint64_t name = 0; name < kChunks; ++name) {
    REQUIRE(table.Create(Id(name), {.payload_bytes = 1}) == ChunkSlot(static_cast<uint32_t>(name)));
    ++with_tag[table.fingerprint(Id(name)).value() >> 32];
  }
  uint64_t alike = 0;
  for (uint64_t name = 0; name < kChunks; ++name) {
    const ChunkId id = Id(name);
    if (with_tag[table.fingerprint(id).value() >> 32] < 2) continue;
    ++alike;
    const ChunkSlot slot(static_cast<uint32_t>(name));
    CHECK(table.Find(id) == slot);
    std::vector<ChunkTable::Link> found(1);
    table.FindAll(id.ns, std::vector{id.key}, std::vector{id.part}, found);
    CHECK(found[0].slot == slot);
    table.Destroy(slot);
    CHECK(table.Find(id) == kNoSlot);
    REQUIRE(table.Create(id, {.payload_bytes = 1}) == slot);
  }
  CHECK(alike >= 2);
}

TEST_CASE("a table of any size can be filled to its last slot, emptied and filled anew") {
  for (const uint32_t most : {1, 2, 3, 7, 100, 30'000}) {
    CAPTURE(most);
    ChunkTable table(std::make_shared<SlotArrays>(most), 7);
    for (const uint64_t first : {0, 1'000'000}) {
      for (uint64_t i = 0; i < most; ++i) {
        REQUIRE(table.Create(Id(first + i), {.payload_bytes = 1}) != kNoSlot);
      }
      CHECK(table.full());
      CHECK(table.Create(Id(first + most), {.payload_bytes = 1}) == kNoSlot);
      CHECK(table.slot_end() == most);
      for (uint64_t i = 0; i < most; ++i) table.Destroy(table.Find(Id(first + i)));
      CHECK(table.size() == 0);
      CHECK(table.Find(Id(first)) == kNoSlot);
    }
  }
}

}  // namespace kvkeep::store_internal
