#include "tiers/remote/presence.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using State = Presence::State;
using std::chrono::seconds;

ChunkId Numbered(uint64_t number) {
  SeededRandom random(number + 1);
  return {random.Next<NamespaceDigest>(), random.Next<ChunkKey>(), PartId(0)};
}

}  // namespace

TEST_CASE("what was learned of a chunk is known for its time, and no other chunk's") {
  Presence presence(1024, 7);
  presence.Note(Numbered(1), State::kPresent, seconds(10), seconds(60));
  presence.Note(Numbered(2), State::kAbsent, seconds(10), seconds(10));
  CHECK(presence.Look(Numbered(1), seconds(69)) == State::kPresent);
  CHECK(presence.Look(Numbered(1), seconds(70)) == State::kUnknown);
  CHECK(presence.Look(Numbered(2), seconds(19)) == State::kAbsent);
  CHECK(presence.Look(Numbered(2), seconds(20)) == State::kUnknown);
  CHECK(presence.Look(Numbered(3), seconds(10)) == State::kUnknown);
  ChunkId part = Numbered(1);
  part.part = PartId(1);
  CHECK(presence.Look(part, seconds(10)) == State::kUnknown);
}

TEST_CASE("what contradicts an entry replaces it at once, even one that would end later") {
  Presence presence(1024, 7);
  presence.Note(Numbered(1), State::kPresent, seconds(0), seconds(10'000));
  presence.Note(Numbered(1), State::kAbsent, seconds(1), seconds(10));
  CHECK(presence.Look(Numbered(1), seconds(2)) == State::kAbsent);
  CHECK(presence.Look(Numbered(1), seconds(12)) == State::kUnknown);
  presence.Note(Numbered(1), State::kPresent, seconds(13), seconds(10));
  presence.Forget(Numbered(1));
  CHECK(presence.Look(Numbered(1), seconds(13)) == State::kUnknown);
}

TEST_CASE("a full cache keeps what is good for longest, and as many entries as it has") {
  Presence presence(1000, 7);
  CHECK(presence.entries() == 1024);
  for (uint64_t i = 0; i < 100'000; ++i) {
    presence.Note(Numbered(i), State::kPresent, seconds(0), seconds(i + 1));
  }
  size_t known = 0, of_the_last = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const bool is = presence.Look(Numbered(i), seconds(0)) == State::kPresent;
    known += is;
    of_the_last += is && i >= 95'000;
  }
  CHECK(known <= 1024);
  CHECK(known >= 1000);
  CHECK(of_the_last > 0.95 * static_cast<double>(known));
}

}  // namespace kvkeep
