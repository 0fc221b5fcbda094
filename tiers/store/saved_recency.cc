#include "tiers/store/saved_recency.h"

#include "tiers/base/bytes.h"

namespace kvkeep::store_internal {
namespace {

constexpr char kAllOfThem = 1;  // versions
constexpr char kLastOfThem = 2;

}  // namespace

std::string SavedRecency::Begin(std::optional<CommitSequence> newest) {
  std::string value(1, newest.has_value() ? kLastOfThem : kAllOfThem);
  if (newest.has_value()) AddTo(value, *newest);
  return value;
}

void SavedRecency::AddTo(std::string& value, CommitSequence sequence) {
  value.resize(value.size() + sizeof(uint64_t));
  StoreAt<uint64_t>(reinterpret_cast<std::byte*>(value.data() + value.size() - sizeof(uint64_t)),
                    sequence.value());
}

SavedRecency SavedRecency::Read(ChunkIndex& index) {
  SavedRecency recency;
  const absl::StatusOr<std::optional<std::string>> saved = index.GetMeta(kName);
  if (!saved.ok() || !saved->has_value() || (**saved).size() % sizeof(uint64_t) != 1) {
    return recency;
  }
  const std::string& value = **saved;
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

uint64_t SavedRecency::RankOf(CommitSequence sequence) const {
  const auto saved = ranks_.find(sequence);
  if (saved != ranks_.end()) return saved->second;
  if (sequence.value() < first_rank_) return sequence.value();
  return first_rank_ + ranks_.size() + sequence.value();
}

}  // namespace kvkeep::store_internal
