#include "tiers/store/puts.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kPutting(0), kIdle(1);
const SessionToken kPutsOne{.bytes = {1}}, kPutsTwo{.bytes = {2}};

struct PutsWorld {
  ~PutsWorld() { puts.CheckInvariants(); }
  uint64_t Begin(const SessionToken& session, TenantId tenant, uint32_t blocks) {
    const Generation generation(next_generation++);
    const Extent extent{.first = BlockNumber(next_block), .count = BlockCount(blocks)};
    next_block += blocks;
    return puts.Begin({.session = session,
                       .tenant = tenant,
                       .generation = generation,
                       .extents = {extent},
                       .blocks = blocks});
  }

  Puts puts{2};
  uint64_t next_generation = 7;
  uint32_t next_block = 0;
};

}  // namespace

TEST_CASE("a put ends with what it began with, under a number of its own") {
  PutsWorld w;
  const uint64_t first = w.Begin(kPutsOne, kPutting, 3), second = w.Begin(kPutsTwo, kIdle, 5);
  CHECK(first != second);
  CHECK(w.puts.at(second).session == kPutsTwo);
  const PendingPut ended = w.puts.End(first);
  CHECK(ended.session == kPutsOne);
  CHECK(ended.tenant == kPutting);
  CHECK(ended.generation == Generation(7));
  CHECK(TotalBlocks(ended.extents).value() == 3);
  const uint64_t third = w.Begin(kPutsOne, kPutting, 3);
  CHECK(third != first);
  CHECK(third != second);
}

TEST_CASE("what puts reserve is told of each tenant and of each session") {
  PutsWorld w;
  const uint64_t a3 = w.Begin(kPutsOne, kPutting, 3), a4 = w.Begin(kPutsOne, kPutting, 4);
  const uint64_t other = w.Begin(kPutsTwo, kPutting, 5);
  w.puts.CheckInvariants();
  CHECK(w.puts.blocks_of(kPutting) == 12);
  CHECK(w.puts.blocks_of(kIdle) == 0);
  CHECK(w.puts.blocks_of(kPutsOne) == 7);
  CHECK(w.puts.blocks_of(kPutsTwo) == 5);

  w.puts.End(a3);
  CHECK(w.puts.blocks_of(kPutting) == 9);
  CHECK(w.puts.blocks_of(kPutsOne) == 4);
  w.puts.End(other);
  CHECK(w.puts.blocks_of(kPutsTwo) == 0);
  w.puts.End(a4);
  CHECK(w.puts.blocks_of(kPutting) == 0);
  CHECK(w.puts.blocks_of(kPutsOne) == 0);
}

TEST_CASE("one of a size is found while it lasts") {
  PutsWorld w;
  const uint64_t put = w.Begin(kPutsOne, kIdle, 3);
  CHECK(w.puts.HasOneOf(3));
  CHECK_FALSE(w.puts.HasOneOf(4));
  w.puts.End(put);
  CHECK_FALSE(w.puts.HasOneOf(3));
}

}  // namespace kvkeep::store_internal
