// Recaller by itself: chunks brought from beyond the node.
#include "tiers/store/recaller.h"

#include <absl/container/btree_map.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/fakes/memory_remote_source.h"
#include "tests/tiers/store/chunks_world.h"

namespace kvkeep::store_internal {
namespace {

using std::chrono::milliseconds;

// Reads of promotions end on request.
class RecallWorld final : private Promotions, private Recaller::Host {
 public:
  RecallWorld() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    w.chunks.pools[0]->limits = {.capacity_blocks = 8 * kImageBlocks};
    remote.pump.SetWork([] {});
  }
  void Share(uint64_t name) {
    auto image = std::make_shared<std::vector<std::byte>>(kImageBlocks * kBlockBytes);
    bucket[ChunksWorld::IdOf(name)] = image;
    // The source tells shapes by the images' headers.
    EncodeSharedHeader(ChunksWorld::IdOf(name), kShape, 0, source.mac_key(),
                       HeaderPage(image->data(), kHeaderBytes));
  }
  RecallingPtr Begin(const std::vector<uint64_t>& names) STORE_LOCKED {
    auto recalling = std::make_shared<Recalling>();
    recalling->done = [this](const absl::StatusOr<uint64_t>& came) {
      told = came.ok() ? std::to_string(*came) : std::string(came.status().message());
    };
    REQUIRE(recaller.MayAsk(kOnlyTenant).ok());
    recaller.Begin({kOnlyTenant, {}}, kOnlyTenant, *recalling);
    for (const uint64_t name : names) recalling->ids.push_back(ChunksWorld::IdOf(name));
    return recalling;
  }
  void Recall(const std::vector<uint64_t>& names) {
    Section section(&w.chunks);
    recaller.Search(Begin(names));
  }
  // Ends all reads as a store does.
  void EndReads(const absl::Status& status) {
    while (!promotions_.empty()) {
      {
        Section section(&w.chunks);
        const ChunkSlot slot = promotions_.begin()->first;
        promotions_.erase(promotions_.begin());
        recaller.OnReadEnded(w.chunks.table.at(slot));
        Change chunk(&w.chunks, slot);
        w.chunks.SetG2State(*chunk, status.ok() ? G2State::kResident : G2State::kAway);
        if (!status.ok()) {
          w.chunks.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
        }
      }
      auto ready = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
      std::move(ready)(status);
    }
  }
  size_t reads() const { return promotions_.size(); }

  static constexpr ImageShape kShape{.payload_bytes = kBlockBytes};
  ChunksWorld w;
  MemoryBucket bucket;
  MemoryRemoteSource source{&bucket, &w.executor, 1, {}};
  RemoteTier remote{0, &source, nullptr, w.options};
  std::string told;
  Recaller recaller{&w.chunks, &remote, this, this, &w.clock};

 private:
  bool MakeRoomInTable(Section&, TenantId) override { return false; }
  void Start(LowerTier& from, const ReadQueue::Requester& requester, ChunkSlot slot,
             MonotonicTime deadline) override STORE_LOCKED {
    const Chunk& chunk = w.chunks.table.at(slot);
    promotions_[slot] =
        std::make_unique<Promotion>(&from, requester, slot, chunk.shape, chunk.g2, deadline);
  }
  Promotion* Find(ChunkSlot slot) override {
    const auto found = promotions_.find(slot);
    return found == promotions_.end() ? nullptr : found->second.get();
  }
  void AwaitAll(Promotion&, StatusCallback ready) override {
    waiting_.push_back(std::move(ready));
  }
  void TellFirst(Promotion::Callbacks, absl::Status) override {}

  absl::btree_map<ChunkSlot, std::unique_ptr<Promotion>> promotions_;
  std::vector<StatusCallback> waiting_;  // in the order of their slots
};

}  // namespace

TEST_CASE("what is found takes space in G2, is read, and who asked is told how much came") {
  RecallWorld r;
  r.Share(1);
  r.Share(2);
  r.Recall({1, 2, 3});
  CHECK(r.told.empty());
  r.w.executor.RunAll();
  CHECK(r.reads() == 2);
  {
    Section section(&r.w.chunks);
    CHECK(r.w.chunks.pool(kOnlyTenant).recalling_blocks == 2 * kImageBlocks);
  }
  r.EndReads(absl::OkStatus());
  CHECK(r.told == "2");
  CHECK(r.w.size() == 2);
  CHECK(r.remote.quiet());
  Section section(&r.w.chunks);
  CHECK(r.w.chunks.pool(kOnlyTenant).recalling_blocks == 0);
}

TEST_CASE("what does not come is gone, with its space") {
  RecallWorld r;
  r.Share(1);
  r.Recall({1});
  r.w.executor.RunAll();
  CHECK(r.w.size() == 1);
  r.EndReads(absl::UnavailableError("the place is away"));
  CHECK(r.told == "0");
  CHECK(r.w.size() == 0);
  Section section(&r.w.chunks);
  CHECK(r.w.chunks.pool(kOnlyTenant).used_blocks() == 0);
}

TEST_CASE("what is deleted after a recall has begun is not brought by it") {
  RecallWorld r;
  r.Share(1);
  r.Share(2);
  r.Recall({1, 2});
  {
    Section section(&r.w.chunks);
    r.remote.removals.Add(ChunksWorld::IdOf(1), RemoteRemovals::Why::kDeleted);
  }
  r.w.executor.RunAll();
  CHECK(r.reads() == 1);
  r.EndReads(absl::OkStatus());
  CHECK(r.told == "1");
}

TEST_CASE("recalls fill a quarter of a tenant's pool at most") {
  RecallWorld r;
  for (uint64_t name = 1; name <= 4; ++name) r.Share(name);
  r.Recall({1, 2, 3, 4});
  r.w.executor.RunAll();
  CHECK(r.reads() == 2);  // of eight images
  CHECK(r.remote.counters.no_space == 1);
  r.EndReads(absl::OkStatus());
  CHECK(r.told == "2");
}

TEST_CASE("a search that is not worth it ends at once, and asks nobody") {
  RecallWorld r;
  {
    Section section(&r.w.chunks);
    const RecallingPtr few = r.Begin({1, 2});
    CHECK_FALSE(r.recaller.SearchIfWorth(few, milliseconds(50)));
  }
  CHECK(r.told == "0");
  CHECK(r.remote.counters.declined_few == 1);
  CHECK(r.remote.counters.searches == 0);
  CHECK(r.remote.quiet());
}

TEST_CASE("a lookup is answered when its wait is over; what is found later comes all the same") {
  RecallWorld r;
  r.Share(1);
  bool searched = false;
  {
    Section section(&r.w.chunks);
    const RecallingPtr recalling = r.Begin({1, 2, 3, 4, 5, 6, 7, 8});
    recalling->searched = [&searched] { searched = true; };
    CHECK(r.recaller.SearchIfWorth(recalling, milliseconds(50)));
  }
  const auto tick = [&r] {
    Section section(&r.w.chunks);
    r.recaller.Tick();
    return r.recaller.waiting_lookups();
  };
  CHECK(tick() == 1);
  r.w.clock.Advance(milliseconds(50));
  CHECK(tick() == 0);
  CHECK(searched);
  CHECK(r.remote.counters.overdue_searches == 1);
  r.w.executor.RunAll();
  CHECK(r.reads() == 1);
  r.EndReads(absl::OkStatus());
  CHECK(r.told == "1");
}

TEST_CASE("a store that drains asks nobody, and says so") {
  RecallWorld r;
  Section section(&r.w.chunks);
  r.recaller.BeginDrain();
  CHECK(r.recaller.MayAsk(kOnlyTenant).message() == "the daemon is draining");
  CHECK(r.remote.counters.recalls_refused == 1);
}

}  // namespace kvkeep::store_internal
