#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr uint32_t kFourPieces = 3 * kMiB + 100;  // four pieces

// Chunk 1 lies in G3 only.
void PutOnDisk(PeerTester& t) {
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, kFourPieces)) == "stored");
  t.Settle();
  t.FloodG2();
}

}  // namespace

TEST_CASE("a chunk of G3 arrives piece by piece: its word never promises what is not there") {
  PeerTester t;
  PutOnDisk(t);
  const auto payload = MakePayload(1, 1, kFourPieces);
  const TestFound found = t.Get({1});
  REQUIRE(found.places.size() == 1);
  CHECK(found.g2 == std::string(1, '\0'));
  CHECK(found.g3 == "\x01");
  const uint32_t word = found.places[0].place.progress_word;
  REQUIRE(word != local::kNoProgressWord);
  CHECK(t.Word(word) == 0);
  uint32_t seen = 0, steps = 0;
  while (t.world.RunOneAtRandom()) {
    const local::ProgressWord now = t.Word(word);
    CHECK(now >= seen);
    steps += now > seen;
    seen = now;
    const auto there = t.Payload(found.places[0]);
    const size_t good = std::min<size_t>(now * kPieceBytes, kFourPieces);
    CHECK(std::equal(there.begin(), there.begin() + good, payload.begin()));
    // The header page is complete with the last piece.
    if (now == 4) CHECK(t.KeyInHeader(found.places[0]) == MakeKey(1));
  }
  CHECK(seen == 4);
  CHECK(steps > 1);  // not all at once at the end
  CHECK(t.Payload(found.places[0]) == payload);
}

TEST_CASE("the next get of a chunk that arrived needs no word") {
  PeerTester t;
  PutOnDisk(t);
  const TestFound first = t.Get({1});
  t.RunAll();
  const TestFound next = t.Get({1});
  REQUIRE(next.places.size() == 1);
  CHECK(next.places[0].place.progress_word == local::kNoProgressWord);
  CHECK(t.Payload(next.places[0]) == MakePayload(1, 1, kFourPieces));
  CHECK(t.Word(first.places[0].place.progress_word) == 4);
}

TEST_CASE("a chunk that is damaged on its device fails its word") {
  PeerTester t;
  PutOnDisk(t);
  for (std::byte& byte : t.world.disk().bytes()) byte ^= std::byte{1};
  const TestFound found = t.Get({1});
  REQUIRE(found.places.size() == 1);
  t.RunAll();
  const local::ProgressWord word = t.Word(found.places[0].place.progress_word);
  CHECK((word & local::kProgressFailed) != 0);
  t.Release(found.head.lease);
  CHECK(t.Get({1}).places.empty());  // a miss from now on
}

TEST_CASE("words go back with their lease, also while the chunk is on its way") {
  PeerTester t;
  PutOnDisk(t);
  const TestFound first = t.Get({1});
  const uint32_t word = first.places[0].place.progress_word;
  CHECK(t.counters.progress_words == 1);
  t.Release(first.head.lease);
  CHECK(t.counters.progress_words == 0);
  // The word now belongs to another get of the same chunk; the first one's pieces do not count
  // twice.
  const TestFound second = t.Get({1});
  CHECK(second.places[0].place.progress_word == word);
  t.RunAll();
  CHECK(t.Word(word) == 4);
  t.peer->End();
  CHECK(t.counters.progress_words == 0);
}

TEST_CASE("an arrival after its lease ended leaves the word alone") {
  PeerTester t;
  PutOnDisk(t);
  const TestFound found = t.Get({1});
  const uint32_t word = found.places[0].place.progress_word;
  t.Release(found.head.lease);
  t.RunAll();
  CHECK(t.Word(word) == 0);
}

TEST_CASE("keys that are no longer kept give their words back, the others go on") {
  PeerTester t;
  t.Open();
  for (const uint64_t name : {1, 2}) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 5000)) == "stored");
  }
  t.Settle();
  t.FloodG2();
  const TestFound found = t.Get({1, 2});
  REQUIRE(found.places.size() == 2);
  CHECK(t.counters.progress_words == 2);
  t.Release(found.head.lease, 1);
  CHECK(t.counters.progress_words == 1);
  t.RunAll();
  CHECK(t.Word(found.places[0].place.progress_word) == 1);
  CHECK(t.Word(found.places[1].place.progress_word) == 0);
}

TEST_CASE("a chunk put anew under the key of a leased one is not taken for it") {
  PeerTester t;
  PutOnDisk(t);
  const std::vector<std::byte> other = MakePayload(1, 2, kFourPieces);
  const auto staging = t.Stage(kFourPieces);
  std::copy(other.begin(), other.end(), staging.begin());
  // Leased without places; then deleted and put again while the disk still reads the first one.
  const uint64_t lookup = t.Tell(Kind::kLookup, t.KeysBody({1}, LeaseMode::kAllPresent, {}, 7));
  const TestFound leased = ReadFound(t.TakeReply(lookup));
  REQUIRE(leased.head.lease != 0);
  const uint64_t gone = t.Tell(Kind::kDelete, t.KeysBody({1}, LeaseMode::kNone));
  t.world.index_executor().RunAll();
  t.loop->RunAll();
  REQUIRE(t.TakeReply(gone).status.ok());
  const uint64_t put = t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = kFourPieces}}));
  t.world.executor().RunAll();
  t.loop->RunAll();
  REQUIRE(ReadAnswers(t.TakeReply(put)) == "stored");
  const TestFound found = t.Get({1}, 7);
  CHECK(found.head.lease == leased.head.lease);
  REQUIRE(found.places.size() == 1);
  const uint32_t word = found.places[0].place.progress_word;
  REQUIRE(word != local::kNoProgressWord);
  t.RunAll();
  CHECK(t.Word(word) == local::kProgressFailed);
  CHECK(t.Payload(t.Get({1}).places.at(0)) == other);
}

}  // namespace kvkeep
