#include "tiers/remote/chunk_summary.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tests/fakes/stored_page.h"

namespace kvkeep {
namespace {

std::vector<uint64_t> DrawHashes(uint64_t seed, size_t count) {
  SeededRandom random(seed);
  std::vector<uint64_t> hashes(count);
  for (uint64_t& hash : hashes) hash = random.NextU64();
  return hashes;
}

ChunkSummary SummaryOf(std::span<const uint64_t> hashes,
                       size_t most_bytes = ChunkSummary::kMostBytes) {
  SummaryBuilder builder(most_bytes);
  for (const uint64_t hash : hashes) builder.Add(hash);
  return builder.Build();
}

TEST_CASE("a summary has every chunk, and few others") {
  const size_t chunks = GENERATE(1u, 41u, 1'000u, 100'000u);
  const std::vector<uint64_t> there = DrawHashes(chunks, chunks);
  const ChunkSummary summary = SummaryOf(there);
  CHECK(summary.level() == 0);
  CHECK(summary.bits().size() * 8 < chunks * ChunkSummary::kBitsAChunk + 512 + 8);
  CHECK(
      std::all_of(there.begin(), there.end(), [&](uint64_t one) { return summary.MayHave(one); }));
  const std::vector<uint64_t> others = DrawHashes(chunks + 1, 100'000);
  const auto wrong = std::count_if(others.begin(), others.end(),
                                   [&](uint64_t one) { return summary.MayHave(one); });
  CHECK(wrong < 1'000);
}

TEST_CASE("a summary of no chunks has none") {
  const ChunkSummary none = SummaryOf({});
  for (const uint64_t hash : DrawHashes(1, 100)) CHECK_FALSE(none.MayHave(hash));
}

TEST_CASE("more chunks than fit are sampled, and few others seem to be there") {
  constexpr size_t kBytes = 4096;
  const std::vector<uint64_t> there = DrawHashes(3, 100'000);
  const ChunkSummary summary = SummaryOf(there, kBytes);
  CHECK(summary.bits().size() <= kBytes);
  CHECK(summary.level() >= 5);  // 2,730 of 100,000 fit
  CHECK(summary.level() <= 7);
  size_t sampled = 0;
  for (const uint64_t one : there) {
    if (!summary.Samples(one)) continue;
    ++sampled;
    CHECK(summary.MayHave(one));
  }
  CHECK(sampled > kBytes * 8 / ChunkSummary::kBitsAChunk / 3);
  size_t others = 0, wrong = 0;
  for (const uint64_t one : DrawHashes(4, 1'000'000)) {
    if (!summary.Samples(one)) continue;
    ++others;
    wrong += summary.MayHave(one);
  }
  CHECK(wrong * 50 < others);
}

TEST_CASE("a run is looked at from its front or its back, up to the first chunk that is missing") {
  std::vector<uint64_t> run = DrawHashes(5, 10);
  const ChunkSummary first_six = SummaryOf(std::span(run).first(6));
  CHECK(first_six.LookFromFront(run).there == 6);
  CHECK(first_six.LookFromFront(run).sampled == 7);
  CHECK(first_six.LookFromBack(run).there == 0);
  CHECK(first_six.LookFromBack(run).sampled == 1);
  CHECK(first_six.LookFromBack(std::span(run).first(6)).there == 6);
  CHECK(first_six.LookFromFront({}).sampled == 0);
}

TEST_CASE("a run says nothing of chunks that are not sampled") {
  const std::vector<uint64_t> there = DrawHashes(6, 50'000);
  const ChunkSummary summary = SummaryOf(there, 64);  // 42 chunks
  std::vector<uint64_t> unsampled;
  for (const uint64_t one : there) {
    if (!summary.Samples(one)) unsampled.push_back(one);
  }
  CHECK(summary.LookFromFront(unsampled).sampled == 0);
  CHECK(summary.LookFromFront(there).there >= 1);
}

TEST_CASE("a summary crosses the wire, and a malformed one is refused by name") {
  const std::vector<uint64_t> there = DrawHashes(7, 1'000);
  const ChunkSummary sent = SummaryOf(there, 640);
  const ChunkSummary got = ChunkSummary::Parse(sent.level(), sent.bits()).value();
  CHECK(got.bits() == sent.bits());
  CHECK(got.LookFromFront(there).there == sent.LookFromFront(there).there);
  for (const size_t bytes : {size_t{0}, size_t{63}, ChunkSummary::kMostBytes + 64}) {
    CHECK(ChunkSummary::Parse(0, std::string(bytes, 'x')).status().message().find("bits") == 0);
  }
  CHECK(ChunkSummary::Parse(41, std::string(64, 'x')).status().message().find("level") == 0);
}

// Nodes of unlike releases must hash alike. Another value here is another version of the protocol
// between nodes (kPeerVersionMax).
TEST_CASE("the hash and the bits of a chunk are as other releases have them") {
  const ChunkId id{CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(2), PartId(3)};
  const uint64_t hash = NameHash(CountedFrom<Uuid>(9))(id);
  CHECK(hash == 0xabbe9c9d7fa9408);
  const ChunkSummary summary = SummaryOf(std::span(&hash, 1));
  std::vector<int> set;
  for (int bit = 0; bit < 512; ++bit) {
    if ((static_cast<uint8_t>(summary.bits()[bit / 8]) >> bit % 8 & 1) != 0) set.push_back(bit);
  }
  CHECK(set == std::vector<int>{4, 8, 108, 159, 213, 358});  // two of the seven are one
}

}  // namespace
}  // namespace kvkeep
