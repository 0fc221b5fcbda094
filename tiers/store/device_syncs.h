// DeviceSyncs: the syncs of one device. It knows what the last one made stable, whether another one
// is due, and who waits.
//
//   Begin --> under way --+--End------> stable up to the mark
//                         +--EndFailed--> no later sync follows: DeviceHealth says so
//                         +--PutOff-----> the index stalls: another one is due
//
// One sync is under way at a time. Its mark may say that the index is clean (record.h). Then
// nothing is committed before another mark says otherwise. A waiter for a sequence is answered once
// the sequence is stable, or can never be. Callbacks run after the hold (hold.h), never under the
// lock.
//
// The device's tier owns it; the store's lock protects it. Committer hands the syncs to the
// device's executor.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <map>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/index/record.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/hold.h"

namespace kvkeep::store_internal {

class DeviceSyncs {
 public:
  // A device begins to join, with this mark; it is here from EndJoin on.
  void BeginJoin(const StableMark& mark) {
    KVKEEP_CHECK(!under_way_);
    stable_ = mark.sequence;
    clean_ = mark.clean;
  }
  void EndJoin(MonotonicTime now) { last_ = now; }

  // ---- when
  // Notes a change that the mark, or the values saved with it, do not say yet.
  void NoteDirty() { dirty_ = true; }
  bool IsDue(MonotonicTime now, std::chrono::nanoseconds interval) const {
    return anyone_waits() || (dirty_ && now - last_ >= interval);
  }
  void NoteTried(MonotonicTime now) { last_ = now; }
  bool at_rest() const { return !under_way_ && !dirty_ && !anyone_waits(); }

  // ---- a sync
  bool under_way() const { return under_way_; }
  // Returns the mark that the sync is to write. It says that the device is clean if `may_be_clean`,
  // and the store drains or the last mark said so.
  StableMark Begin(const Uuid& boot, CommitSequence committed, bool drains, bool may_be_clean) {
    KVKEEP_CHECK(!under_way_ && committed >= stable_);
    under_way_ = true;
    dirty_ = false;
    const bool clean = (drains || clean_) && may_be_clean;
    clean_ |= clean;  // from now on, as nobody knows when the index has the mark
    return {.boot_id = boot, .sequence = committed, .clean = clean};
  }
  void End(const StableMark& mark) {
    KVKEEP_CHECK(under_way_ && mark.sequence >= stable_);
    under_way_ = false;
    stable_ = mark.sequence;
    clean_ = mark.clean;
  }
  void EndFailed() {
    KVKEEP_CHECK(under_way_);
    under_way_ = false;
  }
  void PutOff() {
    KVKEEP_CHECK(under_way_);
    under_way_ = false;
    dirty_ = true;  // perhaps
  }

  bool IsStable(CommitSequence sequence) const { return sequence <= stable_; }
  bool clean() const { return clean_; }

  // ---- who waits
  // Calls `done` when `sequence` is stable or can never be.
  void Wait(CommitSequence sequence, StatusCallback done) {
    waiting_.emplace(sequence, std::move(done));
  }
  bool anyone_waits() const { return !waiting_.empty(); }
  // Answers waiters whose sequence is stable with OK. If `failed` is an error, it answers all
  // others with that. Returns false if the hold was spent before all were answered.
  bool Answer(const absl::Status& failed, Hold& hold) {
    while (!waiting_.empty()) {
      const bool is_stable = IsStable(waiting_.begin()->first);
      if (!is_stable && failed.ok()) break;
      if (hold.Spent()) return false;
      hold.Count(work::kCall);
      hold.Later([waiter = waiting_.extract(waiting_.begin()),
                  status = is_stable ? absl::OkStatus() : failed]() mutable {
        std::move(waiter.mapped())(std::move(status));
      });
    }
    return true;
  }

 private:
  bool under_way_ = false, clean_ = false;
  bool dirty_ = false;  // since the last sync began
  MonotonicTime last_{0};
  CommitSequence stable_;
  std::multimap<CommitSequence, StatusCallback> waiting_;
};

}  // namespace kvkeep::store_internal
