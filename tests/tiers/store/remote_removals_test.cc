// A chunk that was deleted here does not come back from beyond the node.
#include "tiers/store/remote_removals.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

ChunkId Gone(uint8_t name) {
  ChunkId id{};
  id.key.bytes[0] = name;
  return id;
}

bool Nobody(const ChunkId&) { return false; }
bool Always(const ChunkId&) { return true; }
bool Never(const ChunkId&) { return false; }

constexpr auto kDeleted = RemoteRemovals::Why::kDeleted;
constexpr auto kUnseen = RemoteRemovals::Why::kUnseen;
constexpr auto kBad = RemoteRemovals::Why::kBad;

// Returns a chunk of another tenant.
ChunkId OfOther(uint32_t part) {
  ChunkId id{};
  id.ns.bytes.fill(7);
  id.part = PartId(part);
  return id;
}

}  // namespace

TEST_CASE("a deleted name is not believed before it is removed, nor by a search of before") {
  RemoteRemovals removals;
  const auto before = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Gone(1), before));
  removals.Add(Gone(1), kDeleted);
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), before));
  CHECK(removals.MayBeBelieved(Gone(2), before));
  REQUIRE(removals.Next(Nobody, Always) == Gone(1));
  CHECK_FALSE(removals.Next(Nobody, Always).has_value());
  const auto meanwhile = removals.BeginSearch();
  removals.End(Gone(1), true);
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), before));
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), meanwhile));
  const auto after = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Gone(1), after));
  removals.EndSearch(before);
  CHECK(removals.size() == 1);
  removals.EndSearch(after);
  CHECK(removals.size() == 1);
  removals.EndSearch(meanwhile);
  CHECK(removals.size() == 0);
}

TEST_CASE("a removal that failed is sent again, after a while") {
  RemoteRemovals removals;
  removals.Add(Gone(1), kDeleted);
  REQUIRE(removals.Next(Nobody, Always) == Gone(1));
  removals.End(Gone(1), false);
  CHECK_FALSE(removals.Next(Nobody, Always).has_value());
  CHECK_FALSE(removals.at_rest());
  removals.Tend();
  REQUIRE(removals.Next(Nobody, Always) == Gone(1));
  removals.End(Gone(1), true);
  CHECK(removals.at_rest());
  CHECK(removals.size() == 0);
}

TEST_CASE("what is deleted again while its removal is under way is removed again") {
  RemoteRemovals removals;
  removals.Add(Gone(1), kDeleted);
  REQUIRE(removals.Next(Nobody, Always) == Gone(1));
  removals.Add(Gone(1), kDeleted);  // it was put in between
  CHECK_FALSE(removals.Next(Nobody, Always).has_value());
  removals.End(Gone(1), true);
  REQUIRE(removals.Next(Nobody, Always) == Gone(1));
  const auto search = removals.BeginSearch();
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), search));
  removals.End(Gone(1), true);
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), search));
  removals.EndSearch(search);
  CHECK(removals.size() == 0);
}

TEST_CASE("a name in use waits, and the others do not") {
  RemoteRemovals removals;
  removals.Add(Gone(1), kDeleted);
  removals.Add(Gone(2), kDeleted);
  CHECK(removals.Next([](const ChunkId& id) { return id == Gone(1); }, Always) == Gone(2));
  CHECK_FALSE(removals.Next([](const ChunkId& id) { return id == Gone(1); }, Always).has_value());
  CHECK(removals.Next(Nobody, Always) == Gone(1));
}

TEST_CASE("few are under way at once, and no delete pushes another one out") {
  RemoteRemovals removals(2);
  const size_t most = removals.most_of_tenant();
  ChunkId id{};
  for (uint32_t i = 0; i < most; ++i) {
    REQUIRE(removals.HasRoom(id.ns, 1));
    id.part = PartId(i);
    CHECK(removals.Add(id, kDeleted));
  }
  CHECK_FALSE(removals.HasRoom(id.ns, 1));
  CHECK(removals.HasRoom(OfOther(1).ns, most));
  id.part = PartId(1 << 20);
  CHECK_FALSE(removals.Add(id, kBad));
  CHECK(removals.given_up() == 1);
  CHECK(removals.left() == most);
  size_t sent = 0;
  while (removals.Next(Nobody, Always).has_value()) ++sent;
  CHECK(sent == RemoteRemovals::kMostUnderWay);
  id.part = PartId(0);
  CHECK(removals.End(id, true));
  CHECK(removals.HasRoom(id.ns, 1));
}

TEST_CASE("tenants take turns, however many names one of them has") {
  RemoteRemovals removals(2);
  ChunkId id{};
  for (uint32_t i = 0; i < 100; ++i) {
    id.part = PartId(i);
    removals.Add(id, kDeleted);
  }
  removals.Add(OfOther(1), kDeleted);
  removals.Add(OfOther(2), kDeleted);
  int others = 0;
  for (int i = 0; i < 4; ++i) others += removals.Next(Nobody, Always)->ns == OfOther(1).ns;
  CHECK(others == 2);
}

TEST_CASE("names that this node did not have are sent last, and as fast as may be") {
  RemoteRemovals removals;
  removals.Add(Gone(1), kUnseen);
  removals.Add(Gone(2), kUnseen);
  removals.Add(Gone(3), kDeleted);
  CHECK(removals.Next(Nobody, Always) == Gone(3));
  CHECK_FALSE(removals.Next(Nobody, Never).has_value());
  const auto search = removals.BeginSearch();
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), search));
  removals.EndSearch(search);
  CHECK_FALSE(removals.Add(Gone(2), kDeleted));  // it was put meanwhile
  CHECK(removals.Next(Nobody, Never) == Gone(2));
  CHECK(removals.Next(Nobody, Always) == Gone(1));
}

TEST_CASE("of bad images nothing is noted, until one of them is deleted") {
  RemoteRemovals removals;
  CHECK_FALSE(removals.Add(Gone(1), kBad));
  CHECK(removals.Next(Nobody, Always) == Gone(1));
  CHECK_FALSE(removals.End(Gone(1), true));
  CHECK_FALSE(removals.Add(Gone(1), kBad));
  CHECK(removals.Add(Gone(1), kDeleted));
  CHECK_FALSE(removals.Add(Gone(1), kDeleted));
  CHECK(removals.Next(Nobody, Always) == Gone(1));
  CHECK(removals.End(Gone(1), true));
  CHECK(removals.at_rest());
}

TEST_CASE("of many names that a search keeps the oldest go, and the search is not believed then",
          "[figures]") {
  RemoteRemovals removals;
  const auto search = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Gone(1), search));
  ChunkId id{};
  for (uint32_t i = 0; i < RemoteRemovals::kMost + 10; ++i) {
    id.part = PartId(i);
    removals.Add(id, kDeleted);
    REQUIRE(removals.Next(Nobody, Always) == id);
    CHECK(removals.End(id, true));
  }
  CHECK(removals.size() == RemoteRemovals::kMost);
  CHECK(removals.left() == 0);
  CHECK_FALSE(removals.MayBeBelieved(Gone(1), search));
  const auto later = removals.BeginSearch();
  CHECK(removals.MayBeBelieved(Gone(1), later));
  removals.EndSearch(later);
  removals.EndSearch(search);
  for (uint32_t i = 0; i < RemoteRemovals::kMost / RemoteRemovals::kMostAtOnce; ++i) {
    removals.Tend();
  }
  CHECK(removals.size() == 0);
}

}  // namespace kvkeep::store_internal
