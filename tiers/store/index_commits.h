// IndexCommits: what is to be added to one device's index and removed from it, in batches.
//
//   Add, Remove --> waits --Take--> in the batch under way --NoteCommitted--> in the index
//                     ^                     |
//                     +------- PutBack -----+   the index refused the batch
//
// It guarantees:
// - Removals go first, and all of them before any add: an add that came later under the same
//   identity is never undone by an old removal.
// - One batch is under way at a time, and the index gets at most kMostRecords records by it.
// - Every add has a sequence of its own, above all that the index has.
// - Whoever waits for removals is answered once the index has all that were asked for before.
// - Blocks count as being freed from Remove to EndFreeing: nobody else may have them before.
//
// The device's tier owns it; the store's lock protects it. Committer (committer.h) looks at the
// chunks, and talks to the index.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/index/chunk_index.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/account.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/hold.h"
#include "tiers/store/replaced.h"
#include "tiers/store/unsaved_recency.h"

namespace kvkeep::store_internal {

struct PendingAdd {
  ChunkSlot slot;
  IndexRecord record;  // its sequence is the batch's to give
  std::optional<ChunkKey> parent;
};

struct PendingRemove {
  ChunkId id;
  ExtentList extents;
  // By an add of the same batch, or an earlier one: free when that is stable.
  std::optional<KnownRecord> replaced = std::nullopt;
  bool evicted = false;        // not deleted, nor found damaged
  CommitSequence sequence{0};  // of the record; 0: it may not be there
  bool doubtful = false;       // likewise
  bool with_add = false;       // of the same batch, which overwrites the record
  uint64_t number = 0;         // of the removal: IndexCommits gives it
};

// At most IndexCommits::kMostRecords of each. Mostly one: a vector of one costs one small block.
struct CommitBatch {
  std::vector<PendingAdd> adds;
  std::vector<PendingRemove> removes;
  std::vector<ChunkId> forget;            // of the removes: whose record is to go
  std::vector<CommitSequence> forgotten;  // whose recency is to go
  CommitSequence last;
  // It overwrites a record that may be promised: its data has to be stable before, since the index
  // may be by itself at any time.
  bool sync_first = false;
  absl::Status synced;

  bool empty() const { return adds.empty() && removes.empty(); }
  // For the index; not under the lock.
  IndexBatch Records() const;
};

class IndexCommits {
 public:
  static constexpr size_t kMostRecords = 64;  // so many are made or taken note of under one hold
  static constexpr std::chrono::seconds kRetry{1};
  // An index that refuses batches for so long counts as one that fails.
  static constexpr std::chrono::seconds kRefusalPatience{30};

  // ---- a device joins: so far is its mark; it has this record; these are all
  void BeginJoin(CommitSequence mark) {
    KVKEEP_CHECK(!under_way_ && !anyone_waits() && freeing_blocks_ == 0);
    committed_ = assigned_ = mark;
  }
  void NoteRecord(CommitSequence sequence) { assigned_ = std::max(assigned_, sequence); }
  void EndJoin() {
    KVKEEP_CHECK(!under_way_ && assigned_ >= committed_);
    committed_ = assigned_;
  }

  // ---- what waits
  void Add(PendingAdd add) { adds_.push_back(std::move(add)); }
  void Remove(PendingRemove remove);
  bool anyone_waits() const { return !adds_.empty() || !removes_.empty(); }
  const std::deque<PendingAdd>& adds() const { return adds_; }
  const std::deque<PendingRemove>& removes() const { return removes_; }
  // The first one, which no batch takes any more. REQUIRES: there is one.
  PendingAdd TakeAdd();
  PendingRemove TakeRemove();
  // The device is let go of. REQUIRES: no add waits, and no batch is under way.
  void Clear();

  // ---- a batch is made
  bool MayBegin(MonotonicTime now) const {
    return !under_way_ && anyone_waits() && now >= retry_at_;
  }
  // Its removals.
  CommitBatch TakeRemoves();
  // The next add that it may have. None: it is full, or has all that may go with it.
  std::optional<PendingAdd> TakeAddFor(const CommitBatch& batch);
  // With an add of the batch, whose record overwrites this one's.
  void RemoveWith(CommitBatch& batch, PendingRemove replaced);
  // It is on its way from here on; its adds have their sequences. `keeps` is asked of each removal:
  // what the index has under that name is another record, which stays.
  void Begin(CommitBatch& batch, absl::FunctionRef<bool(const ChunkId&)> keeps,
             const UnsavedRecency& recency);
  bool under_way() const { return under_way_; }

  // ---- what became of it
  void NoteCommitted(const CommitBatch& batch) {
    KVKEEP_CHECK(under_way_ && batch.last >= committed_);
    committed_ = batch.last;
  }
  // Whether what the index answered so is to be tried again as it is: it refused, and not for long.
  bool IsPutOff(const absl::Status& answer, MonotonicTime now);
  void NoteTaken() { refused_since_.reset(); }  // the index took something else
  void WaitToRetry(MonotonicTime now) { retry_at_ = now + kRetry; }
  // Puts what the batch has back, from its end: it waits and counts as before.
  void PutBack(PendingAdd add) {
    KVKEEP_CHECK(under_way_);
    adds_.push_front(std::move(add));
  }
  void PutBack(PendingRemove remove) {
    KVKEEP_CHECK(under_way_);
    remove.with_add = false;
    // They lie in the order of their numbers: a smaller one makes others wait longer, never less.
    if (!removes_.empty()) remove.number = std::min(remove.number, removes_.front().number);
    removes_.push_front(std::move(remove));
  }
  // The states of the chunks tell now what the index holds.
  void End() {
    KVKEEP_CHECK(under_way_);
    under_way_ = false;
  }
  // A device opened anew: how the index was before says nothing.
  void ForgetRefusals() {
    refused_since_.reset();
    retry_at_ = MonotonicTime(0);
  }

  // ---- who waits for removals
  // How many removals were asked for so far; whether the index has all that were by then.
  uint64_t asked() const { return asked_; }
  bool HasRemoved(uint64_t asked) const { return asked < FirstRemoval(); }
  // Answered when the index has every removal that was asked for up to now.
  void WaitForRemovals(StatusCallback done) { waiting_.emplace_back(asked_, std::move(done)); }
  // Answers whoever's removals the index has; unless `failed` is OK the others, too, with that.
  void AnswerRemovals(const absl::Status& failed, Hold& hold);

  // Blocks of a removal are free, or somebody has them again.
  void EndFreeing(const ExtentList& extents);
  // Blocks of all removals, those of the batch under way and of removals that are not stable yet
  // included.
  uint64_t freeing_blocks() const { return freeing_blocks_; }

  CommitSequence committed() const { return committed_; }  // the last one in the index
  // Nothing is to be committed, and what was is all that the index says.
  bool settled() const { return !anyone_waits() && !under_way_ && committed_ == assigned_; }

 private:
  // The number of the first removal that the index does not have.
  uint64_t FirstRemoval() const;

  Account freeing_blocks_;  // first, beside what DeviceTier has
  std::deque<PendingAdd> adds_;
  std::deque<PendingRemove> removes_;
  bool under_way_ = false;
  uint64_t asked_ = 0;          // removals, ever
  uint64_t first_removal_ = 0;  // of the batch under way
  std::deque<std::pair<uint64_t, StatusCallback>> waiting_;  // by asked_
  MonotonicTime retry_at_{0};                   // after a refused batch
  std::optional<MonotonicTime> refused_since_;  // batches, one after the other
  CommitSequence assigned_, committed_;         // the last given out, in the index
};

}  // namespace kvkeep::store_internal
