// Beyond by itself: when images are written and removed beyond the node.
#include "tiers/store/beyond.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/memory_remote_source.h"
#include "tests/fakes/memory_removal_log.h"
#include "tests/tiers/store/chunks_world.h"

namespace kvkeep::store_internal {
namespace {

// Images in G2 are invalid here, so no write of them succeeds.
struct BeyondWorld {
  BeyondWorld() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    remote.pump.SetWork([this] {
      w.chunks.AssertHeld();
      beyond.Pump();
    });
  }
  template <typename Work>
  void Locked(Work work) {
    Section section(&w.chunks);
    work();
  }
  void OfferPut(ChunkSlot slot, bool wanted = true) {
    Section section(&w.chunks);
    beyond.OfferPut(slot, std::nullopt, wanted);
  }
  void Tick() {
    Section section(&w.chunks);
    beyond.Tick();
  }
  bool awaits_use(ChunkSlot slot) {
    Section section(&w.chunks);
    return remote.awaits_use(slot);
  }

  ChunksWorld w;
  std::set<ChunkId> left;  // in the log
  MemoryRemovalLog log{&left, &w.executor};
  MemoryBucket bucket;
  MemoryRemoteSource source{&bucket, &w.executor, 1, {}};
  RemoteTier remote{0, &source, &log, w.options};
  DataKey key;
  Beyond beyond{&w.chunks, &remote, w.deps, {&key}, std::make_shared<CipherBuffers>(), kMiB};
};

}  // namespace

TEST_CASE("a chunk whose writes fail is offered again, and at last waits for its next use") {
  BeyondWorld b;
  const ChunkSlot slot = b.w.Add(1);
  b.OfferPut(slot);
  CHECK_FALSE(b.awaits_use(slot));
  b.w.executor.RunAll();
  CHECK(b.remote.counters.offered_chunks == 1);
  CHECK(b.remote.counters.failed_writes == RemoteWrites::kMostRefusals);
  CHECK(b.awaits_use(slot));
  CHECK(b.remote.at_rest());
  // Its space was kept for each of the writes, and is free now.
  Section section(&b.w.chunks);
  CHECK(b.w.chunks.table.at(slot).evictable_from_g2());
}

TEST_CASE("a chunk that its client wants nowhere else is not offered") {
  BeyondWorld b;
  const ChunkSlot slot = b.w.Add(1);
  b.OfferPut(slot, /*wanted=*/false);
  b.w.executor.RunAll();
  CHECK(b.remote.counters.offered_chunks == 0);
  Section section(&b.w.chunks);
  CHECK(b.w.chunks.table.at(slot).beyond == RemoteAges::kNever);
}

TEST_CASE("with no rate nothing is offered") {
  BeyondWorld b;
  {
    Section section(&b.w.chunks);
    b.beyond.SetWriteRate(0);
  }
  b.OfferPut(b.w.Add(1));
  CHECK(b.remote.counters.offered_chunks == 0);
}

TEST_CASE("a removal is in the log before it is answered, and leaves it once it is done") {
  BeyondWorld b;
  const ChunkId id = ChunksWorld::IdOf(5);
  b.bucket[id] = std::make_shared<std::vector<std::byte>>(2 * kBlockBytes);
  int answered = 0;
  {
    Section section(&b.w.chunks);
    b.beyond.Remove(id, RemoteRemovals::Why::kDeleted);
    b.beyond.WhenNoted(false, [&](const absl::Status& status) {
      CHECK(status.ok());
      CHECK(b.left.contains(id));
      ++answered;
    });
  }
  CHECK(answered == 0);
  b.w.executor.RunAll();
  CHECK(answered == 1);
  CHECK(b.bucket.empty());
  CHECK(b.left.empty());
  CHECK(b.remote.counters.removed_chunks == 1);
}

TEST_CASE("a log that takes nothing is told to who waits, and is tried again") {
  BeyondWorld b;
  b.log.fails = true;
  absl::Status told;
  {
    Section section(&b.w.chunks);
    b.beyond.Remove(ChunksWorld::IdOf(5), RemoteRemovals::Why::kDeleted);
    b.beyond.WhenNoted(true, [&](const absl::Status& status) { told = status; });
  }
  b.w.executor.RunAll();
  CHECK(absl::IsResourceExhausted(told));
  CHECK(b.remote.counters.failed_removal_notes > 0);
  b.log.fails = false;
  b.Tick();
  b.w.executor.RunAll();
  CHECK(b.remote.journal.at_rest());
  CHECK(b.left.empty());  // its removal was done meanwhile
}

TEST_CASE("a store that drains begins nothing more, unless what waits is to be written") {
  BeyondWorld b;
  const bool writes = GENERATE(false, true);
  CAPTURE(writes);
  {
    Section section(&b.w.chunks);
    b.beyond.BeginDrain(section, writes);
    b.beyond.Remove(ChunksWorld::IdOf(5), RemoteRemovals::Why::kDeleted);
  }
  b.OfferPut(b.w.Add(1));
  b.w.executor.RunAll();
  CHECK((b.remote.counters.removed_chunks == 1) == writes);
  CHECK((b.remote.counters.failed_writes > 0) == writes);
}

}  // namespace kvkeep::store_internal
