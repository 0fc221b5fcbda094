#include "tiers/store/missed_deletes.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

ChunkId Id(uint8_t ns, uint8_t key, uint32_t part = 0) {
  ChunkId id;
  id.ns.bytes[0] = ns;
  id.key.bytes[0] = key;
  id.part = PartId(part);
  return id;
}

}  // namespace

TEST_CASE("a delete covers the chunk that it names, and no other") {
  MissedDeletes missed;
  CHECK(missed.empty());
  missed.Add(Id(1, 1));
  CHECK_FALSE(missed.empty());
  CHECK(missed.Covers(Id(1, 1)));
  CHECK_FALSE(missed.Covers(Id(1, 2)));
  CHECK_FALSE(missed.Covers(Id(2, 1)));
  CHECK_FALSE(missed.Covers(Id(1, 1, 1)));
}

TEST_CASE("the delete of a namespace covers its chunks, that of everything all") {
  MissedDeletes missed;
  missed.AddNamespace(Id(1, 0).ns);
  CHECK(missed.Covers(Id(1, 7)));
  CHECK_FALSE(missed.Covers(Id(2, 7)));
  missed.AddAll();
  CHECK(missed.Covers(Id(2, 7)));
  CHECK_FALSE(missed.overflowed());
}

TEST_CASE("more deletes than are held cover everything") {
  MissedDeletes missed(2);
  missed.Add(Id(1, 1));
  missed.Add(Id(1, 1));  // the same again counts once
  missed.Add(Id(1, 2));
  CHECK_FALSE(missed.overflowed());
  CHECK_FALSE(missed.Covers(Id(1, 3)));
  missed.Add(Id(1, 3));
  CHECK(missed.overflowed());
  CHECK(missed.Covers(Id(9, 9)));
}

}  // namespace kvkeep::store_internal
