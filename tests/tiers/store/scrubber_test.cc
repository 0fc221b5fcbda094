#include "tiers/store/scrubber.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <vector>

#include "tests/sim/payload.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

using std::chrono::seconds;

struct World {
  ChunkSlot Add(uint64_t name) {
    const ChunkSlot slot = table.Create({{}, MakeKey(name), PartId(0)}, {.payload_bytes = 1});
    table.at(slot).g3_state = G3State::kStored;
    return slot;
  }
  std::optional<ChunkSlot> Next() {
    const auto only_in_g3 = [this](const Chunk& chunk) {
      return !away && !chunk.has_g2_space() && chunk.g3_state == G3State::kStored;
    };
    const auto has_tenant = [this](const Chunk& chunk) {
      return !orphans.contains(table.Find(chunk.id));
    };
    const auto doubted_twice = [this](const Chunk& chunk) {
      return twice.contains(table.Find(chunk.id));
    };
    hold.Begin();
    return scrubber.Next({only_in_g3, has_tenant, doubted_twice});
  }
  // Returns the slots read until there are no more, each with this many bytes.
  std::vector<ChunkSlot> ReadAll(uint64_t bytes) {
    std::vector<ChunkSlot> read;
    scrubber.BeginLook();
    while (const std::optional<ChunkSlot> slot = Next()) {
      scrubber.Reading(bytes);
      read.push_back(*slot);
      scrubber.Ended(true);
    }
    return read;
  }

  StoreCounters counters;
  ChunkTable table{std::make_shared<SlotArrays>(5000), 7};
  Hold hold{600};
  Scrubber scrubber{&table, &hold, &counters};
  bool away = false;
  std::set<ChunkSlot> orphans, twice;
};

}  // namespace

TEST_CASE("a round reads each chunk that G3 alone has, then the next one begins") {
  World w;
  const ChunkSlot one = w.Add(1), in_g2 = w.Add(2), orphan = w.Add(3), four = w.Add(4);
  w.table.at(in_g2).g2_state = G2State::kResident;
  w.orphans.insert(orphan);
  CHECK_FALSE(w.scrubber.on());
  w.scrubber.SetRate(kGiB);
  CHECK(w.scrubber.on());
  w.scrubber.Pay(seconds(1));
  for (uint64_t round = 1; round < 3; ++round) {
    CHECK(w.ReadAll(1) == std::vector<ChunkSlot>{one, four});
    CHECK(w.counters.scrub_rounds == round);
    CHECK(w.counters.scrub_skipped_chunks == round);
  }
}

TEST_CASE("the budget is a second's at most, and what was too much is paid off first") {
  World w;
  for (uint64_t name = 0; name < 100; ++name) w.Add(name);
  w.scrubber.SetRate(10);
  w.scrubber.Pay(seconds(1000));
  CHECK(w.ReadAll(4).size() == 3);  // 10 - 12: two too many
  w.scrubber.Pay(seconds(1000));
  CHECK(w.ReadAll(4).empty());
  w.scrubber.Pay(seconds(1001));
  CHECK(w.ReadAll(4).size() == 2);
}

TEST_CASE("one chunk is read at a time") {
  World w;
  w.Add(1);
  w.Add(2);
  w.scrubber.SetRate(kGiB);
  w.scrubber.Pay(seconds(1));
  CHECK(w.Next().has_value());
  CHECK_FALSE(w.Next().has_value());
  w.scrubber.Ended(false);
  CHECK(w.Next().has_value());
}

TEST_CASE("a round that was asked for ends at the table's end, or when it is taken back") {
  World w;
  w.Add(1);
  w.scrubber.AskRound(kGiB);
  CHECK(w.scrubber.round_asked());
  w.scrubber.Pay(seconds(1));
  CHECK(w.ReadAll(1).size() == 1);
  CHECK_FALSE(w.scrubber.round_asked());
  CHECK(w.ReadAll(1).empty());
  w.scrubber.AskRound(1);
  w.scrubber.AskRound(0);
  CHECK_FALSE(w.scrubber.on());
}

TEST_CASE("what is in doubt twice is read first, without a rate, until it is in doubt no more") {
  World w;
  const ChunkSlot plain = w.Add(1), doubted = w.Add(2);
  w.table.at(doubted).doubtful = true;
  w.twice.insert(doubted);
  w.scrubber.AddInDoubt(doubted);
  CHECK(w.scrubber.IsInDoubt(doubted));
  CHECK_FALSE(w.scrubber.IsInDoubt(plain));
  w.scrubber.Pay(seconds(1));
  CHECK(w.Next() == doubted);
  w.scrubber.Ended(true);
  w.twice.clear();
  CHECK_FALSE(w.Next().has_value());
  CHECK_FALSE(w.scrubber.on());
}

TEST_CASE("what is in doubt and cannot be read now holds up neither the hold nor the round") {
  World w;
  for (uint64_t name = 0; name < 1000; ++name) {
    const ChunkSlot slot = w.Add(name);
    w.table.at(slot).doubtful = true;
    w.twice.insert(slot);
    w.scrubber.AddInDoubt(slot);
  }
  w.away = true;
  w.scrubber.SetRate(kGiB);
  w.scrubber.Pay(seconds(1));
  w.scrubber.BeginLook();
  CHECK_FALSE(w.Next().has_value());
  CHECK(w.scrubber.looked_at() > 0);  // the round went on
  w.away = false;
  w.scrubber.BeginLook();
  CHECK(w.Next().has_value());
}

}  // namespace kvkeep::store_internal
