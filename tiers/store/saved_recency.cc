#include "tiers/store/saved_recency.h"

#include <absl/numeric/int128.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/radix_sort.h"

namespace kvkeep::store_internal {
namespace {

constexpr char kAllOfThem = 1;  // versions of the former value
constexpr char kLastOfThem = 2;
constexpr uint64_t kUnsaved = UINT64_MAX;  // rank of a chunk without an entry

CommitSequence SequenceOf(const AdoptedChunk& chunk) { return chunk.sequence; }

// Saves all deltas, or the first ones up to an error.
absl::Status SaveInBatches(ChunkIndex& index, std::span<const RecencyDelta> deltas) {
  while (!deltas.empty()) {
    const size_t count = std::min(deltas.size(), ChunkIndex::kMostRecencyDeltas);
    absl::Status saved = index.SaveRecency(deltas.first(count));
    if (!saved.ok()) return saved;
    deltas = deltas.subspan(count);
  }
  return absl::OkStatus();
}

// REQUIRES: `adopted` is in the order of sequences, as a scan's records are.
absl::Status ReadEntries(ChunkIndex& index, std::vector<AdoptedChunk>& adopted,
                         SavedRecency& found) {
  std::vector<RecencyDelta> nobodys;
  auto next = adopted.begin();
  absl::Status scanned = index.ScanRecency([&](const RecencyDelta& entry) {
    while (next != adopted.end() && SequenceOf(*next) < entry.sequence) ++next;
    if (next == adopted.end() || SequenceOf(*next) != entry.sequence) {
      if (nobodys.size() < SavedRecency::kMostDropped) {
        nobodys.push_back({entry.sequence, std::nullopt});
      }
      return true;
    }
    if (*entry.recency > SavedRecency::kMostRank) return true;
    next->rank = *entry.recency;
    found.newest = std::max(found.newest, *entry.recency);
    return true;
  });
  // If the index refuses, another start drops them.
  if (scanned.ok() && SaveInBatches(index, nobodys).ok()) found.dropped = nobodys.size();
  return scanned;
}

// If the index refuses some entries, the value stays, and the entries that were saved agree with
// it.
void TakeOver(ChunkIndex& index, const FormerRecency& former, std::vector<AdoptedChunk>& adopted,
              SavedRecency& found) {
  std::vector<RecencyDelta> deltas;
  for (AdoptedChunk& chunk : adopted) {
    if (chunk.rank != kUnsaved) continue;
    const uint64_t rank = former.RankOf(chunk.sequence);
    chunk.rank = rank;
    found.newest = std::max(found.newest, rank);
    deltas.push_back({chunk.sequence, rank});
  }
  if (!SaveInBatches(index, deltas).ok()) {
    found.saved_to = CommitSequence(0);
    return;
  }
  index.EraseMeta(FormerRecency::kName).IgnoreError();
}

}  // namespace

std::optional<FormerRecency> FormerRecency::Read(ChunkIndex& index) {
  const absl::StatusOr<std::optional<std::string>> saved = index.GetMeta(kName);
  if (!saved.ok() || !saved->has_value()) return std::nullopt;
  FormerRecency recency;
  const std::string& value = **saved;
  if (value.size() % sizeof(uint64_t) != 1) return recency;
  const auto* at = reinterpret_cast<const std::byte*>(value.data() + 1);
  const auto sequence = [at](uint64_t i) { return LoadAt<uint64_t>(at + sizeof(uint64_t) * i); };
  const uint64_t count = value.size() / sizeof(uint64_t);
  const uint64_t head = value[0] == kLastOfThem ? 1 : 0;
  if ((value[0] != kAllOfThem && value[0] != kLastOfThem) || count < head) return recency;
  if (head > 0) recency.first_rank_ = sequence(0) + 1;
  for (uint64_t i = head; i < count; ++i) {
    recency.ranks_.emplace(CommitSequence(sequence(i)), recency.first_rank_ + i - head);
  }
  return recency;
}

uint64_t FormerRecency::RankOf(CommitSequence sequence) const {
  const auto saved = ranks_.find(sequence);
  if (saved != ranks_.end()) return saved->second;
  if (sequence.value() < first_rank_) return sequence.value();
  return first_rank_ + ranks_.size() + sequence.value();
}

SavedRecency SavedRecency::Read(ChunkIndex& index, std::vector<AdoptedChunk>& adopted) {
  SavedRecency found;
  const auto by_sequence = [](const AdoptedChunk& chunk) { return SequenceOf(chunk).value(); };
  RadixSort(std::span(adopted), by_sequence);
  for (AdoptedChunk& chunk : adopted) chunk.rank = kUnsaved;
  const bool read = ReadEntries(index, adopted, found).ok();
  const std::optional<FormerRecency> former = FormerRecency::Read(index);
  if (former.has_value()) TakeOver(index, *former, adopted, found);
  if (!read) found.saved_to = CommitSequence(0);
  // A chunk without an entry came after the last save.
  for (AdoptedChunk& chunk : adopted) {
    if (chunk.rank != kUnsaved) continue;
    const uint64_t sequence = SequenceOf(chunk).value();
    chunk.rank = kMostRank + sequence;
    found.saved_to = std::min(found.saved_to, CommitSequence(sequence - 1));
  }
  // Chunks that came with their parent have its rank. The tail of a chain is evicted first.
  RadixSort(std::span(adopted), [](const AdoptedChunk& chunk) {
    return absl::MakeUint128(chunk.rank, ~SequenceOf(chunk).value());
  });
  return found;
}

}  // namespace kvkeep::store_internal
