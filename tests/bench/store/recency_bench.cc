// kvkeep-recency-bench: bytes a minute that saving the order of eviction writes to an index.
//
// A real RocksDB has a record of each chunk. Every minute some chunks are touched, anywhere, and
// their recency is saved in two ways: `value`, as the version before did, one named value with all
// sequences in order; `deltas`, an entry for each touched chunk. Counts what the process hands to
// files, logs and compactions included, until nothing is under way any more. `--other N`: adds and
// removes so many records every minute as well.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

struct Options {
  uint64_t chunks = 1'000'000;
  double touched = 1;  // per cent
  uint64_t minutes = 60;
  uint64_t other = 0;
};

// Returns the bytes that this process has written to files.
uint64_t Written() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "wchar:") return value;
  }
  KVKEEP_CHECK(false);
}

IndexRecord Record(uint64_t n) {
  SeededRandom random(n + 1);
  return {.id = {random.Next<NamespaceDigest>(), random.Next<ChunkKey>(), PartId(0)},
          .shape = {.payload_bytes = 4096},
          .generation = Generation(n),
          .sequence = CommitSequence(n),
          .extents = {{BlockNumber(2 * n), BlockCount(2)}}};
}

void Add(ChunkIndex& index, uint64_t from, uint64_t to, bool and_remove) {
  constexpr uint64_t kBatch = 64;
  for (uint64_t n = from; n < to; n += kBatch) {
    IndexBatch batch, gone;
    for (uint64_t i = n; i < std::min(to, n + kBatch); ++i) {
      batch.adds.push_back(Record(i));
      gone.removes.push_back(batch.adds.back().id);
    }
    KVKEEP_CHECK(index.Commit(batch).ok());
    if (and_remove) KVKEEP_CHECK(index.Commit(gone).ok());
  }
}

void SaveAsValue(ChunkIndex& index, uint64_t chunks) {
  std::string value(1 + chunks * sizeof(uint64_t), '\1');
  for (uint64_t i = 0; i < chunks; ++i) std::memcpy(&value[1 + i * sizeof(i)], &i, sizeof(i));
  KVKEEP_CHECK(index.PutMeta("recency", value).ok());
}

void SaveDeltas(ChunkIndex& index, const std::vector<RecencyDelta>& deltas) {
  for (size_t at = 0; at < deltas.size(); at += ChunkIndex::kMostRecencyDeltas) {
    const size_t count = std::min(deltas.size() - at, ChunkIndex::kMostRecencyDeltas);
    KVKEEP_CHECK(index.SaveRecency(std::span(deltas).subspan(at, count)).ok());
  }
}

void AwaitRest(const ChunkIndex& index) {
  for (int quiet = 0; quiet < 5; ++quiet) {
    const IndexStats stats = index.stats();
    if (stats.flushes + stats.compactions > 0) quiet = 0;
    poll(nullptr, 0, /*timeout=*/50);  // RocksDB's own threads signal nothing
  }
}

void Measure(const Options& options, bool deltas) {
  ScratchDir dir;
  const auto index =
      OpenRocksDbIndex(dir / "index", {}, {.create = true, .may_wait = true}).value();
  Add(*index, 1, options.chunks + 1, /*and_remove=*/false);
  SeededRandom random(7);
  uint64_t newest = 0;
  std::vector<RecencyDelta> touched;
  for (uint64_t i = 1; i <= options.chunks; ++i) touched.push_back({CommitSequence(i), ++newest});
  deltas ? SaveDeltas(*index, touched) : SaveAsValue(*index, options.chunks);
  AwaitRest(*index);
  const uint64_t before = Written();
  uint64_t record = options.chunks + 1;
  for (uint64_t minute = 0; minute < options.minutes; ++minute) {
    Add(*index, record, record + options.other, /*and_remove=*/true);
    record += options.other;
    touched.clear();
    const auto count = static_cast<uint64_t>(static_cast<double>(options.chunks) *
                                             options.touched / 100);
    for (uint64_t i = 0; i < count; ++i) {
      touched.push_back({CommitSequence(random.Below(options.chunks) + 1), ++newest});
    }
    if (deltas) {
      SaveDeltas(*index, touched);
    } else if (count > 0) {
      SaveAsValue(*index, options.chunks);
    }
  }
  AwaitRest(*index);
  const auto bytes = static_cast<double>(Written() - before);
  std::printf("%-7s %9lu chunks, %4.1f %% touched: %12.0f bytes written a minute\n",
              deltas ? "deltas" : "value", options.chunks, options.touched,
              bytes / static_cast<double>(options.minutes));
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  kvkeep::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const double value = std::strtod(argv[i + 1], nullptr);
    const auto whole = static_cast<uint64_t>(value);
    if (std::strcmp(argv[i], "--chunks") == 0) options.chunks = whole;
    if (std::strcmp(argv[i], "--touched") == 0) options.touched = value;
    if (std::strcmp(argv[i], "--minutes") == 0) options.minutes = whole;
    if (std::strcmp(argv[i], "--other") == 0) options.other = whole;
  }
  for (const bool deltas : {false, true}) kvkeep::Measure(options, deltas);
}
