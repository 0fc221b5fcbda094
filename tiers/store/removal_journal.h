// RemovalJournal: writes notes to the log that outlives the process (tiers/nvme/removal_log.h):
// which images beyond the node are to be removed, and which were. It tells callers that wait for a
// note.
//
//   Deleted, Ended --> waits --Take--> being written --End--> in the log
//                        ^                  |
//                        +----- failed -----+   and its waiters are told
//
// One write is under way at a time. Callbacks run after the hold (hold.h). The store's lock
// protects it; Beyond (beyond.h) hands the writes to the log.
#pragma once

#include <absl/status/status.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/nvme/removal_log.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/hold.h"

namespace kvkeep::store_internal {

class RemovalJournal {
 public:
  struct Writing {
    RemovalLog::Notes notes;
    bool sync = false;
  };

  explicit RemovalJournal(RemovalLog* log) : log_(log) {}  // null: nothing outlives the process
  RemovalLog* log() const { return log_; }

  void Deleted(const ChunkId& id) { Add({.id = id, .ended = false}); }
  void Ended(const ChunkId& id) { Add({.id = id, .ended = true}); }
  // Calls `done` once all earlier deletes are in the log; `sync`: once they are on stable storage.
  void Wait(bool sync, StatusCallback done) {
    waiting_.push_back(std::move(done));
    sync_ |= sync;
  }
  // Returns the next write, which is then under way; none: one is, or there is nothing to write.
  std::optional<Writing> Take() {
    const bool wanted = !waiting_.empty() || (!notes_.empty() && !failed_);
    if (under_way_ || !wanted) return std::nullopt;
    under_way_ = true;
    told_ = std::exchange(waiting_, {});
    written_ = std::make_shared<std::deque<RemovalLog::Note>>(std::exchange(notes_, {}));
    return Writing{written_, std::exchange(sync_, false)};
  }
  void End(const absl::Status& status, Hold& hold) {
    KVKEEP_CHECK(under_way_);
    under_way_ = false;
    failed_ = !status.ok();
    for (StatusCallback& done : told_) hold.CallLater(std::move(done), status);
    told_.clear();
    // The next write takes these notes again; the log may have some of them twice.
    if (failed_) notes_.insert(notes_.begin(), written_->begin(), written_->end());
    written_.reset();
  }
  // Lets failed notes be written again although nobody waits for them. Called now and then.
  void Tend() { failed_ = false; }
  bool at_rest() const { return !under_way_ && waiting_.empty(); }

 private:
  void Add(RemovalLog::Note note) {
    if (log_ != nullptr) notes_.push_back(std::move(note));
  }

  RemovalLog* const log_;
  std::deque<RemovalLog::Note> notes_;          // to be written
  RemovalLog::Notes written_;                   // being written
  std::vector<StatusCallback> waiting_, told_;  // for the next write; for the one under way
  bool sync_ = false, under_way_ = false;
  bool failed_ = false;  // the last write failed, and Tend was not called since
};

}  // namespace kvkeep::store_internal
