#include "server/local/put_tasks.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/image.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxPiecesPerTask = 64;

}  // namespace

void PutTasks::Plan(std::vector<PutPiece> pieces, BytesOf bytes_of) {
  KVKEEP_CHECK(left_.load(std::memory_order_acquire) == 0);
  MutexLock lock(&mu_);
  pieces_before_ += pieces_.size();
  pieces_ = std::move(pieces);
  starts_.clear();
  uint64_t task_bytes = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const uint64_t bytes = bytes_of(pieces_[i]);
    const bool full = starts_.empty() || task_bytes + bytes > kPieceBytes ||
                      i - starts_.back() >= kMaxPiecesPerTask;
    if (full) {
      starts_.push_back(i);
      task_bytes = 0;
    }
    task_bytes += bytes;
  }
  starts_.push_back(pieces_.size());
  left_.store(pieces_.size(), std::memory_order_relaxed);
  ready_ = posted_ = running_ = 0;
  NoteReadyTasks();
}

size_t PutTasks::count() {
  MutexLock lock(&mu_);
  return starts_.size() - 1;
}

void PutTasks::NoteReady(size_t pieces) {
  MutexLock lock(&mu_);
  ready_pieces_ = std::max(ready_pieces_, pieces);
  NoteReadyTasks();
}

void PutTasks::NoteReadyTasks() {
  while (ready_ + 1 < starts_.size() && pieces_before_ + starts_[ready_ + 1] <= ready_pieces_) {
    ++ready_;
  }
}

PutTasks::Range PutTasks::Post() {
  MutexLock lock(&mu_);
  const size_t first = posted_;
  const size_t more = std::min(ready_ - posted_, most_running_ - running_);
  posted_ += more;
  running_ += more;
  return {first, posted_};
}

void PutTasks::PostOnly() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(starts_.size() == 2 && posted_ == 0);
  ready_ = posted_ = running_ = 1;
}

std::span<const PutPiece> PutTasks::PiecesOf(size_t task) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(task < posted_);
  const size_t begin = starts_[task], end = starts_[task + 1];
  return std::span(pieces_).subspan(begin, end - begin);
}

std::optional<size_t> PutTasks::End(bool goes_on) {
  MutexLock lock(&mu_);
  if (goes_on && posted_ < ready_) return posted_++;
  --running_;
  return std::nullopt;
}

bool PutTasks::NoteDone(size_t pieces) {
  return left_.fetch_sub(pieces, std::memory_order_acq_rel) == pieces;
}

}  // namespace kvkeep
