#include "tiers/index/record_pipe.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

bool RecordPipe::Put(Batch batch) {
  MutexLock lock(&mu_);
  while (waiting_.size() >= kMaxWaiting && !stopped_) changed_.Wait(&mu_);
  if (stopped_) return false;
  KVKEEP_CHECK(!ended_ && batch.records.size() <= kBatchRecords);
  waiting_.push_back(std::move(batch));
  changed_.NotifyAll();
  return true;
}

void RecordPipe::EndOfRecords() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!ended_);
  ended_ = true;
  changed_.NotifyAll();
}

std::optional<RecordPipe::Batch> RecordPipe::Take() {
  MutexLock lock(&mu_);
  while (waiting_.empty() && !ended_) changed_.Wait(&mu_);
  if (waiting_.empty()) return std::nullopt;
  Batch batch = std::move(waiting_.front());
  waiting_.pop_front();
  changed_.NotifyAll();
  return batch;
}

void RecordPipe::StopTaking() {
  MutexLock lock(&mu_);
  stopped_ = true;
  waiting_.clear();
  changed_.NotifyAll();
}

}  // namespace kvkeep
