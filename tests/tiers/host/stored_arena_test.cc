// The target of arena.id, and names of an arena's files, as format v2 has them on its mount.
#include <catch2/catch.hpp>

#include "tests/fakes/stored_page.h"
#include "tiers/host/arena_files.h"

namespace kvkeep {

TEST_CASE("a stored arena.id of format v2 is read, and written byte for byte") {
  constexpr char kStored[] = "v2:404142434445464748494a4b4c4d4e4f:1073741824:5368709120:42";
  const ArenaId id{.uuid = CountedFrom<Uuid>(0x40),
                   .geometry = {.capacity_bytes = 5 * kGiB, .segment_bytes = kGiB},
                   .owners = 42};
  CHECK(id.ToString() == kStored);
  CHECK(ArenaId::Parse(kStored) == id);
  CHECK(SegmentName(0) == "segment.000");
  CHECK(SegmentName(1023) == "segment.1023");
  CHECK(IsArenaFile("arena.id"));
  CHECK(IsArenaFile("arena.marks"));
}

}  // namespace kvkeep
