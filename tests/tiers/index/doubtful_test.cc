#include "tiers/index/doubtful.h"

#include <catch2/catch.hpp>

namespace kvkeep {

TEST_CASE("a range of doubtful sequences is kept as it is, without its first and with its last") {
  const Doubtful doubtful{CommitSequence(3), CommitSequence(0x0102030405060708)};
  const std::string value = EncodeDoubtful(doubtful);
  const char first[] = "\x01\x03\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01";
  CHECK(value == std::string(first, 17));
  CHECK(DecodeDoubtful(value) == doubtful);
  CHECK_FALSE(doubtful.contains(CommitSequence(3)));
  CHECK(doubtful.contains(CommitSequence(4)));
  CHECK(doubtful.contains(doubtful.to));
  CHECK_FALSE(doubtful.contains(CommitSequence(doubtful.to.value() + 1)));
}

TEST_CASE("no value is no doubt, and one that nobody can read is doubt of everything") {
  CHECK_FALSE(DecodeDoubtful(std::nullopt).contains(CommitSequence(1)));
  const std::string value = EncodeDoubtful({CommitSequence(1), CommitSequence(2)});
  std::string other = value;
  other[0] = 2;
  for (const std::string& wrong : {std::string(), value.substr(1), value + "x", other}) {
    CHECK(DecodeDoubtful(wrong).contains(CommitSequence(1)));
    CHECK(DecodeDoubtful(wrong).contains(CommitSequence(UINT64_MAX)));
  }
}

}  // namespace kvkeep
