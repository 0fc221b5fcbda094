#include "tiers/store/index_commits.h"

#include <absl/container/btree_set.h>

#include <limits>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

template <typename Pending>
Pending TakeFirst(std::deque<Pending>& from) {
  KVKEEP_CHECK(!from.empty());
  Pending first = std::move(from.front());
  from.pop_front();
  return first;
}

}  // namespace

IndexBatch CommitBatch::Records() const {
  IndexBatch records;
  for (const PendingAdd& add : adds) records.adds.push_back(add.record);
  records.removes.assign(forget.begin(), forget.end());
  records.forgotten = forgotten;
  for (const PendingRemove& remove : removes) {
    if (!remove.extents.empty()) records.freed.push_back(remove.extents[0].first);
  }
  return records;
}

void IndexCommits::Remove(PendingRemove remove) {
  freeing_blocks_.Take(TotalBlocks(remove.extents).value());
  remove.number = ++asked_;
  removes_.push_back(std::move(remove));
}

PendingAdd IndexCommits::TakeAdd() { return TakeFirst(adds_); }

PendingRemove IndexCommits::TakeRemove() { return TakeFirst(removes_); }

void IndexCommits::Clear() {
  KVKEEP_CHECK(adds_.empty() && !under_way_);
  removes_.clear();
  freeing_blocks_ = {};
}

CommitBatch IndexCommits::TakeRemoves() {
  KVKEEP_CHECK(!under_way_);
  CommitBatch batch;
  while (!removes_.empty() && batch.removes.size() < kMostRecords) {
    batch.removes.push_back(TakeRemove());
  }
  return batch;
}

std::optional<PendingAdd> IndexCommits::TakeAddFor(const CommitBatch& batch) {
  const bool full = batch.removes.size() + batch.adds.size() >= kMostRecords;
  if (full || !removes_.empty() || adds_.empty()) return std::nullopt;
  return TakeAdd();
}

void IndexCommits::RemoveWith(CommitBatch& batch, PendingRemove replaced) {
  freeing_blocks_.Take(TotalBlocks(replaced.extents).value());
  replaced.with_add = true;
  replaced.number = ++asked_;
  batch.removes.push_back(std::move(replaced));
}

void IndexCommits::Begin(CommitBatch& batch, absl::FunctionRef<bool(const ChunkId&)> keeps,
                         const UnsavedRecency& recency) {
  KVKEEP_CHECK(!under_way_ && !batch.empty());
  under_way_ = true;
  first_removal_ = std::numeric_limits<uint64_t>::max();
  absl::btree_set<ChunkId> named;
  for (PendingAdd& add : batch.adds) {
    add.record.sequence = ++assigned_;
    if (!batch.removes.empty()) named.insert(add.record.id);
  }
  // Gives the batch a number of its own, for callers that wait until it is stable.
  if (batch.adds.empty()) ++assigned_;
  for (const PendingRemove& remove : batch.removes) {
    first_removal_ = std::min(first_removal_, remove.number);
    const bool goes = !keeps(remove.id) && named.insert(remove.id).second;
    if (goes) batch.forget.push_back(remove.id);
    const bool saved = recency.MayBeSaved(remove.sequence);
    if (remove.sequence.value() > 0 && saved) batch.forgotten.push_back(remove.sequence);
  }
  KVKEEP_CHECK(batch.adds.size() + batch.forget.size() <= kMostRecords);
  batch.last = assigned_;
}

bool IndexCommits::IsPutOff(const absl::Status& answer, MonotonicTime now) {
  if (!absl::IsUnavailable(answer)) {
    refused_since_.reset();
    return false;
  }
  if (!refused_since_.has_value()) refused_since_ = now;
  return now - *refused_since_ < kRefusalPatience;
}

uint64_t IndexCommits::FirstRemoval() const {
  uint64_t first = std::numeric_limits<uint64_t>::max();
  if (under_way_) first = first_removal_;
  if (!removes_.empty()) first = std::min(first, removes_.front().number);
  return first;
}

void IndexCommits::AnswerRemovals(const absl::Status& failed, Hold& hold) {
  while (!waiting_.empty()) {
    const bool gone = waiting_.front().first < FirstRemoval();
    if (!gone && failed.ok()) return;
    hold.Count(work::kCall);
    hold.CallLater(std::move(waiting_.front().second), gone ? absl::OkStatus() : failed);
    waiting_.pop_front();
  }
}

void IndexCommits::EndFreeing(const ExtentList& extents) {
  freeing_blocks_.Give(TotalBlocks(extents).value());
}

}  // namespace kvkeep::store_internal
