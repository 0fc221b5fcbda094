#include "tiers/store/doubtful_records.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::store_internal {
namespace {

std::vector<CommitSequence> Numbers(std::initializer_list<uint64_t> numbers) {
  std::vector<CommitSequence> sequences;
  for (const uint64_t one : numbers) sequences.emplace_back(one);
  return sequences;
}

Doubtful::Range Range(uint64_t after, uint64_t to) {
  return {CommitSequence(after), CommitSequence(to)};
}

}  // namespace

TEST_CASE("few records in doubt are told one by one, and a range without any vanishes") {
  DoubtfulRecords doubts(Numbers({40, 10, 30, 20}));
  CHECK(doubts.Ranges() == Doubtful{{Range(9, 40)}});
  doubts.Remove(CommitSequence(20));
  CHECK(doubts.Ranges() == Doubtful{{Range(9, 10), Range(29, 40)}});
  doubts.Remove(CommitSequence(10));
  CHECK(doubts.Ranges() == Doubtful{{Range(29, 40)}});
  doubts.Remove(CommitSequence(40));
  CHECK(doubts.Ranges() == Doubtful{{Range(29, 30)}});
  CHECK(doubts.size() == 1);
  doubts.Remove(CommitSequence(30));
  CHECK(doubts.Ranges() == Doubtful());
  CHECK(DoubtfulRecords().Ranges() == Doubtful());
}

TEST_CASE("what is certain already lies in a gap") {
  DoubtfulRecords doubts(Numbers({10, 20, 50}), Numbers({60, 30, 15, 40, 5}));
  CHECK(doubts.Ranges() == Doubtful{{Range(9, 10), Range(19, 20), Range(49, 50)}});
  doubts.Remove(CommitSequence(20));
  CHECK(doubts.Ranges() == Doubtful{{Range(9, 10), Range(49, 50)}});
}

TEST_CASE("of more gaps than there may be the smallest are closed") {
  std::vector<CommitSequence> all;
  for (uint64_t i = 1; i <= 4100; ++i) all.emplace_back(i);
  DoubtfulRecords doubts(all);
  doubts.Remove(CommitSequence(2));  // of one record, all others of two
  uint64_t removed = 1;
  for (uint64_t i = 4; i + 2 < 4100; i += 4, removed += 2) {
    doubts.Remove(CommitSequence(i));
    doubts.Remove(CommitSequence(i + 1));
  }
  const Doubtful ranges = doubts.Ranges();
  CHECK(ranges.ranges.size() == Doubtful::kMostRanges);
  CHECK(ranges.contains(CommitSequence(2)));
  CHECK_FALSE(ranges.contains(CommitSequence(4)));
  CHECK(doubts.size() == 4100 - removed);
}

TEST_CASE("however many records leave, what is left is covered, in ranges that can be written") {
  SeededRandom random(3);
  for (const uint64_t count : {uint64_t{100}, uint64_t{9000}, uint64_t{100'000}}) {
    std::vector<CommitSequence> all;
    for (uint64_t i = 0, sequence = 1; i < count; ++i) {
      all.emplace_back(sequence);
      sequence += 1 + random.Below(3);
    }
    DoubtfulRecords doubts(all);
    std::set<CommitSequence> left(all.begin(), all.end());
    // In runs, as a reader of a prompt reads.
    for (uint64_t i = 0; i < all.size(); i += random.Below(60)) {
      const uint64_t end = std::min<uint64_t>(all.size(), i + random.Below(60));
      for (; i < end; ++i) {
        doubts.Remove(all[i]);
        left.erase(all[i]);
      }
    }
    const Doubtful ranges = doubts.Ranges();
    CHECK(DecodeDoubtful(EncodeDoubtful(ranges)) == ranges);
    for (const CommitSequence one : left) CHECK(ranges.contains(one));
    uint64_t covered = 0;
    for (const CommitSequence one : all) covered += ranges.contains(one);
    CHECK(covered < all.size());
    for (const CommitSequence one : left) doubts.Remove(one);
    CHECK(doubts.Ranges() == Doubtful());
  }
}

}  // namespace kvkeep::store_internal
