#include "tiers/store/unsaved_recency.h"

#include <array>
#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

struct Device {
  UnsavedRecency unsaved;
  std::array<Chunk, 8> chunks;

  explicit Device(uint64_t most) {
    unsaved.SetMost(most);
    unsaved.Begin(/*base=*/1000, CommitSequence(5), CommitSequence(5), {10});
    for (Chunk& chunk : chunks) chunk.g3_sequence = CommitSequence(1);
  }
  void Touch(uint32_t slot) { unsaved.NoteTouched(chunks[slot], ChunkSlot(slot)); }
  // Returns the slots that a save takes if every chunk has that recency.
  std::vector<uint32_t> Save(int64_t recency, bool saved = true) {
    unsaved.BeginSave({recency}, CommitSequence(9));
    std::vector<uint32_t> taken;
    while (const auto slot = unsaved.Next(chunks.size())) {
      if (unsaved.Take(chunks[slot->value()], recency)) taken.push_back(slot->value());
    }
    unsaved.EndSave(saved);
    return taken;
  }
};

}  // namespace

TEST_CASE("a save takes what was noted, once, while that is little") {
  Device d(3);
  CHECK(d.unsaved.empty());
  d.Touch(4);
  d.Touch(2);
  d.Touch(4);
  CHECK(d.unsaved.noted() == 2);
  CHECK(d.Save(11) == std::vector<uint32_t>{4, 2});
  CHECK(d.unsaved.empty());
  d.Touch(4);
  CHECK(d.Save(12) == std::vector<uint32_t>{4});
}

TEST_CASE("a save looks at all where too much was noted, and takes what is above the last one") {
  Device d(3);
  for (uint32_t slot = 0; slot < 4; ++slot) d.Touch(slot);
  CHECK(d.unsaved.noted() == 3);
  CHECK(d.Save(10).empty());  // they were touched, and stayed in place
  for (uint32_t slot = 0; slot < 4; ++slot) d.Touch(slot);
  CHECK(d.Save(11).size() == d.chunks.size());
  d.Touch(1);  // its note did not survive the check at all
  CHECK(d.Save(12) == std::vector<uint32_t>{1});
}

TEST_CASE("after a save that failed the next one looks at all, above what is saved") {
  Device d(3);
  d.Touch(1);
  CHECK(d.Save(11, /*saved=*/false) == std::vector<uint32_t>{1});
  CHECK_FALSE(d.unsaved.empty());
  CHECK(d.Save(11).size() == d.chunks.size());
  CHECK(d.unsaved.empty());
}

TEST_CASE("a newer record is taken whatever its recency, and one that came again is noted again") {
  Device d(3);
  d.chunks[1].g3_sequence = CommitSequence(6);
  d.Touch(1);
  d.chunks[2].recency_noted = true;  // for another device
  d.unsaved.NoteStored(d.chunks[2], ChunkSlot(2));
  CHECK(d.unsaved.noted() == 2);
  CHECK(d.Save(3) == std::vector<uint32_t>{1});
}

TEST_CASE("numbers go on above those of the process before; what goes first is zero") {
  Device d(3);
  CHECK(d.unsaved.NumberOf(1) == 1001);
  CHECK(d.unsaved.NumberOf(0) == 0);
  CHECK(d.unsaved.NumberOf(-(int64_t{1} << 60)) == 0);
  CHECK(d.unsaved.MayBeSaved(CommitSequence(5)));
  CHECK_FALSE(d.unsaved.MayBeSaved(CommitSequence(6)));
  d.Touch(1);
  d.Save(11, /*saved=*/false);
  CHECK(d.unsaved.MayBeSaved(CommitSequence(9)));  // a part of it may be
}

TEST_CASE("a device of whose records some are not saved is looked at once") {
  Device d(3);
  d.unsaved.Begin(0, CommitSequence(4), CommitSequence(9), {10});
  CHECK_FALSE(d.unsaved.empty());
  d.chunks[6].g3_sequence = CommitSequence(5);
  CHECK(d.Save(10) == std::vector<uint32_t>{6});
  CHECK(d.unsaved.empty());
}

}  // namespace kvkeep::store_internal
