#include "server/fleet/summary_maker.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/stored_page.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

const NameHash kHash{CountedFrom<Uuid>(1)};

ChunkId Numbered(uint32_t number) { return {CountedFrom<NamespaceDigest>(1), {}, PartId(number)}; }

// A node whose chunks the test sets.
class NamedChunks {
 public:
  std::shared_ptr<const SummaryMaker::Made> Next() {
    maker.Newest();
    executor.RunAll();
    return maker.Newest();
  }

  ManualClock clock;
  ManualExecutor executor;
  std::vector<ChunkId> chunks;
  int walks = 0;
  size_t named = 0, stops_at = SIZE_MAX;
  seconds walk_takes{0};
  SummaryMaker maker{{.every = seconds(10)},
                     kHash,
                     [this](TakeName take) {
                       ++walks;
                       clock.Advance(walk_takes);
                       named = 0;
                       for (const ChunkId& id : chunks) {
                         if (stops_at == named) maker.Stop();
                         ++named;
                         if (!take(id)) break;
                       }
                     },
                     &executor,
                     &clock};
};

TEST_CASE("chunks are looked at when somebody asks, and not more often than that") {
  NamedChunks node;
  node.executor.RunAll();
  CHECK(node.walks == 0);
  CHECK(node.maker.Newest() == nullptr);  // it is made now
  CHECK(node.maker.busy());
  node.executor.RunAll();
  CHECK_FALSE(node.maker.busy());
  node.chunks = {Numbered(7)};
  CHECK_FALSE(node.Next()->summary.MayHave(kHash(Numbered(7))));
  CHECK(node.walks == 1);
  node.clock.Advance(seconds(10));
  CHECK(node.Next()->summary.MayHave(kHash(Numbered(7))));
  CHECK(node.walks == 2);
}

TEST_CASE("a summary has another version if it has other content") {
  NamedChunks node;
  const uint64_t of_none = node.Next()->version;
  CHECK(of_none == SummaryMaker::OfNothing()->version);
  node.clock.Advance(seconds(10));
  CHECK(node.Next()->version == of_none);
  node.chunks = {Numbered(7)};
  node.clock.Advance(seconds(10));
  CHECK(node.Next()->version != of_none);
  CHECK(node.walks == 3);
}

TEST_CASE("a node with many chunks looks at them for a twentieth of the time") {
  NamedChunks node;
  node.walk_takes = seconds(3);
  node.Next();
  node.clock.Advance(seconds(59));
  node.Next();
  CHECK(node.walks == 1);
  node.clock.Advance(seconds(1));
  node.Next();
  CHECK(node.walks == 2);
}

TEST_CASE("summaries of all peers together have a bound") {
  CHECK(SummaryMaker::MostBytes(0) == ChunkSummary::kMostBytes);
  CHECK(SummaryMaker::MostBytes(64) == ChunkSummary::kMostBytes);
  CHECK(SummaryMaker::MostBytes(256) == 512 << 10);
  CHECK(SummaryMaker::MostBytes(1023) * 1023 <= SummaryMaker::kBytesOfAll);
  NamedChunks node;
  node.maker.SetPeers(1023);
  for (uint32_t i = 0; i < 200'000; ++i) node.chunks.push_back(Numbered(i));
  CHECK(node.Next()->summary.bits().size() <= SummaryMaker::MostBytes(1023));
  CHECK(node.Next()->summary.level() >= 1);
}

TEST_CASE("a maker that is stopped looks at nothing any more") {
  NamedChunks node;
  node.maker.Stop();
  CHECK(node.Next() == nullptr);
  CHECK(node.walks == 0);
}

TEST_CASE("a walk ends when its maker is stopped") {
  NamedChunks node;
  for (uint32_t i = 0; i < 100; ++i) node.chunks.push_back(Numbered(i));
  node.stops_at = 10;
  node.Next();
  CHECK(node.named == 11);
  CHECK_FALSE(node.maker.busy());
}

}  // namespace
}  // namespace kvkeep
