#include "tiers/store/suspects.h"

#include <catch2/catch.hpp>

#include "tests/sim/payload.h"

namespace kvkeep::store_internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A table of chunks of G3, and their suspects.
struct Suspected {
  ChunkSlot Add(uint64_t name) {
    const ChunkSlot slot = table.Create({{}, MakeKey(name), PartId(0)}, {.payload_bytes = 1});
    table.at(slot).g3_state = G3State::kStored;
    return slot;
  }
  bool Fails(ChunkSlot slot) { return suspects.NoteFailed(table.at(slot), now); }
  // Returns the first one that is due, if any.
  std::optional<ChunkSlot> Next() {
    std::optional<ChunkSlot> next;
    while (!next.has_value() && suspects.due(now)) next = suspects.Next(table, now);
    return next;
  }

  ChunkTable table{std::make_shared<SlotArrays>(100), 7};
  Suspects suspects;
  MonotonicTime now = seconds(100);
};

}  // namespace

TEST_CASE("a suspect is given up after failures that are far apart, however many there are") {
  Suspected s;
  const ChunkSlot slot = s.Add(1);
  for (uint32_t failed = 1; failed < Suspects::kMostFailures; ++failed) {
    for (int i = 0; i < 20; ++i) CHECK(s.Fails(slot));
    s.now += Suspects::kAgain;
  }
  CHECK_FALSE(s.Fails(slot));
  CHECK(s.suspects.empty());
}

TEST_CASE("a suspect's turn comes again and again, until it is good") {
  Suspected s;
  const ChunkSlot slot = s.Add(1);
  CHECK(s.Fails(slot));
  CHECK(s.suspects.IsRecent(s.table.at(slot), s.now));
  CHECK_FALSE(s.Next().has_value());
  for (int turn = 0; turn < 3; ++turn) {
    s.now += Suspects::kAgain;
    CHECK_FALSE(s.suspects.IsRecent(s.table.at(slot), s.now));
    CHECK(s.Next() == slot);
    CHECK_FALSE(s.Next().has_value());
  }
  CHECK(s.suspects.NoteGood(s.table.at(slot).id));
  CHECK_FALSE(s.suspects.NoteGood(s.table.at(slot).id));
  CHECK(s.suspects.empty());
  s.now += Suspects::kAgain;
  CHECK_FALSE(s.Next().has_value());
}

TEST_CASE("what was put anew, or is gone, is no suspect") {
  Suspected s;
  const ChunkSlot anew = s.Add(1), gone = s.Add(2);
  for (const ChunkSlot slot : {anew, gone}) CHECK(s.Fails(slot));
  ++s.table.at(anew).g3_generation;
  s.table.Detach(gone);
  s.now += Suspects::kAgain;
  CHECK_FALSE(s.suspects.IsRecent(s.table.at(anew), s.now - milliseconds(1)));
  CHECK_FALSE(s.Next().has_value());
  CHECK_FALSE(s.Next().has_value());
  CHECK(s.suspects.empty());
}

TEST_CASE("a copy that was put anew begins with its first failure") {
  Suspected s;
  const ChunkSlot slot = s.Add(1);
  for (uint32_t failed = 1; failed < Suspects::kMostFailures; ++failed) {
    CHECK(s.Fails(slot));
    s.now += Suspects::kAgain;
  }
  ++s.table.at(slot).g3_generation;
  CHECK(s.Fails(slot));
  s.now += Suspects::kAgain;
  CHECK(s.Next() == slot);
  CHECK_FALSE(s.Next().has_value());
}

}  // namespace kvkeep::store_internal
