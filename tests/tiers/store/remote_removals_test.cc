// What was deleted here does not come back from beyond the node.
#include "tiers/store/remote_removals.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

ChunkId Id(uint8_t name) {
  ChunkId id{};
  id.key.bytes[0] = name;
  return id;
}

bool Nobody(const ChunkId&) { return false; }

}  // namespace

TEST_CASE("a deleted name is not believed before it is removed, nor by a search of before") {
  RemoteRemovals removals;
  const auto before = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Id(1), before));
  removals.Add(Id(1));
  CHECK_FALSE(removals.MayBeBelieved(Id(1), before));
  CHECK(removals.MayBeBelieved(Id(2), before));
  REQUIRE(removals.Next(Nobody) == Id(1));
  CHECK_FALSE(removals.Next(Nobody).has_value());
  const auto meanwhile = removals.BeginSearch();
  removals.End(Id(1), true);
  CHECK_FALSE(removals.MayBeBelieved(Id(1), before));
  CHECK_FALSE(removals.MayBeBelieved(Id(1), meanwhile));
  const auto after = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Id(1), after));
  removals.EndSearch(before);
  CHECK(removals.size() == 1);
  removals.EndSearch(after);
  CHECK(removals.size() == 1);
  removals.EndSearch(meanwhile);
  CHECK(removals.size() == 0);
}

TEST_CASE("a removal that failed is sent again, after a while") {
  RemoteRemovals removals;
  removals.Add(Id(1));
  REQUIRE(removals.Next(Nobody) == Id(1));
  removals.End(Id(1), false);
  CHECK_FALSE(removals.Next(Nobody).has_value());
  CHECK_FALSE(removals.at_rest());
  removals.Tend();
  REQUIRE(removals.Next(Nobody) == Id(1));
  removals.End(Id(1), true);
  CHECK(removals.at_rest());
  CHECK(removals.size() == 0);
}

TEST_CASE("what is deleted again while its removal is under way is removed again") {
  RemoteRemovals removals;
  removals.Add(Id(1));
  REQUIRE(removals.Next(Nobody) == Id(1));
  removals.Add(Id(1));  // it was put in between
  CHECK_FALSE(removals.Next(Nobody).has_value());
  removals.End(Id(1), true);
  REQUIRE(removals.Next(Nobody) == Id(1));
  const auto search = removals.BeginSearch();
  CHECK_FALSE(removals.MayBeBelieved(Id(1), search));
  removals.End(Id(1), true);
  CHECK_FALSE(removals.MayBeBelieved(Id(1), search));
  removals.EndSearch(search);
  CHECK(removals.size() == 0);
}

TEST_CASE("a name in use waits, and the others do not") {
  RemoteRemovals removals;
  removals.Add(Id(1));
  removals.Add(Id(2));
  CHECK(removals.Next([](const ChunkId& id) { return id == Id(1); }) == Id(2));
  CHECK_FALSE(removals.Next([](const ChunkId& id) { return id == Id(1); }).has_value());
  CHECK(removals.Next(Nobody) == Id(1));
}

TEST_CASE("few are under way at once, and so many are remembered at most") {
  RemoteRemovals removals;
  ChunkId id{};
  for (uint32_t i = 0; i < RemoteRemovals::kMost + 10; ++i) {
    id.part = PartId(i);
    removals.Add(id);
  }
  CHECK(removals.size() == RemoteRemovals::kMost);
  CHECK(removals.given_up() == 10);
  const auto search = removals.BeginSearch();
  id.part = PartId(3);  // of the oldest
  CHECK(removals.MayBeBelieved(id, search));
  id.part = PartId(10);
  CHECK_FALSE(removals.MayBeBelieved(id, search));
  size_t sent = 0;
  while (removals.Next(Nobody).has_value()) ++sent;
  CHECK(sent == RemoteRemovals::kMostUnderWay);
}

TEST_CASE("names that are kept for a search keep no new ones from being removed",
          "[figures]") {
  RemoteRemovals removals;
  const auto search = removals.BeginSearch();
  ChunkId id{};
  for (uint32_t i = 0; i < RemoteRemovals::kMost; ++i) {
    id.part = PartId(i);
    removals.Add(id);
    REQUIRE(removals.Next(Nobody) == id);
    removals.End(id, true);
  }
  CHECK(removals.size() == RemoteRemovals::kMost);
  removals.Add(Id(1));
  CHECK(removals.Next(Nobody) == Id(1));
  removals.EndSearch(search);
  for (uint32_t i = 0; i < RemoteRemovals::kMost / RemoteRemovals::kMostAtOnce; ++i) {
    removals.Tend();
  }
  CHECK(removals.size() == 1);
}

}  // namespace kvkeep::store_internal
