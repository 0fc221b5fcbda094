#include "tiers/index/doubtful.h"

#include <catch2/catch.hpp>

#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

Doubtful::Range Range(uint64_t after, uint64_t to) {
  return {CommitSequence(after), CommitSequence(to)};
}

std::string InVersion(char version, const std::vector<uint64_t>& numbers) {
  std::string value(1 + numbers.size() * sizeof(uint64_t), version);
  for (size_t i = 0; i < numbers.size(); ++i) {
    StoreAt<uint64_t>(reinterpret_cast<std::byte*>(value.data() + 1 + i * sizeof(uint64_t)),
                      numbers[i]);
  }
  return value;
}

}  // namespace

TEST_CASE("ranges of doubt are kept as they are, without their first and with their last") {
  const Doubtful doubtful{{Range(3, 5), Range(5, 6), Range(9, 0x0102030405060708)}};
  const std::string value = EncodeDoubtful(doubtful);
  CHECK(value == InVersion(2, {3, 5, 5, 6, 9, 0x0102030405060708}));  // the format is frozen
  CHECK(value.substr(1, 8) == std::string("\3\0\0\0\0\0\0\0", 8));
  CHECK(DecodeDoubtful(value) == doubtful);
  for (const uint64_t in : {uint64_t{4}, uint64_t{5}, uint64_t{6}, uint64_t{10},
                            uint64_t{0x0102030405060708}}) {
    CHECK(doubtful.contains(CommitSequence(in)));
  }
  for (const uint64_t out : {uint64_t{0}, uint64_t{3}, uint64_t{7}, uint64_t{9},
                             uint64_t{0x0102030405060709}}) {
    CHECK_FALSE(doubtful.contains(CommitSequence(out)));
  }
  CHECK(DecodeDoubtful(EncodeDoubtful({})) == Doubtful());
}

TEST_CASE("the one range of version 1 is read") {
  CHECK(DecodeDoubtful(InVersion(1, {3, 7})) == Doubtful{{Range(3, 7)}});
  CHECK(DecodeDoubtful(InVersion(1, {7, 7})) == Doubtful());
}

TEST_CASE("no value is no doubt, and one that nobody can read is doubt of everything") {
  CHECK_FALSE(DecodeDoubtful(std::nullopt).contains(CommitSequence(1)));
  std::vector<uint64_t> many;
  for (uint64_t i = 0; i <= Doubtful::kMostRanges; ++i) many.insert(many.end(), {2 * i, 2 * i + 1});
  for (const std::string& wrong :
       {std::string(), InVersion(1, {1, 2}).substr(0, 16), InVersion(1, {1, 2}) + '\0',
        InVersion(1, {1, 2, 3, 4}), InVersion(3, {1, 2}), InVersion(2, {1, 2, 2}),
        InVersion(2, {2, 2}), InVersion(2, {1, 4, 3, 5}), InVersion(2, many)}) {
    CAPTURE(wrong);
    CHECK(DecodeDoubtful(wrong) == Doubtful::All());
  }
  CHECK(Doubtful::All().contains(CommitSequence(1)));
  CHECK(Doubtful::All().contains(CommitSequence(UINT64_MAX)));
}

}  // namespace kvkeep
