// IndexCommits: the records that are to be added to one device's index or removed from it, in
// batches.
//
//   Add, Remove --> waits --Take--> in the batch under way --NoteCommitted--> in the index
//                     ^                     |
//                     +------- PutBack -----+   the index refused the batch
//
// It guarantees:
// - All removals go before any add. So an old removal never undoes a later add of the same
//   identity.
// - One batch is under way at a time, and it has at most kMostRecords records.
// - Every add has a sequence of its own, above all that the index has.
// - A caller that waits for removals is answered once the index has all that were asked for before.
// - Blocks count as being freed from Remove to EndFreeing. Nobody else may have them before that.
//
// The device's tier owns it. The store's lock protects it. Committer (committer.h) looks at the
// chunks, and calls the index.
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
  // Set if an add of this batch or an earlier one replaced the record. Then the extents are free
  // once that add is stable.
  std::optional<KnownRecord> replaced = std::nullopt;
  bool evicted = false;        // false: deleted, or found damaged
  CommitSequence sequence{0};  // of the record; 0: the index may not have it
  bool doubtful = false;       // of the record
  bool with_add = false;       // an add of the same batch overwrites the record
  uint64_t number = 0;         // of the removal; IndexCommits sets it
};

// It has at most IndexCommits::kMostRecords of each, mostly one: a vector of one costs one small
// block.
struct CommitBatch {
  std::vector<PendingAdd> adds;
  std::vector<PendingRemove> removes;
  std::vector<ChunkId> forget;            // those of `removes` whose records are to be removed
  std::vector<CommitSequence> forgotten;  // records whose recency is to be removed
  CommitSequence last;
  // The batch overwrites a record that may be promised. So its data has to be stable before, since
  // the index may become stable by itself at any time.
  bool sync_first = false;
  absl::Status synced;

  bool empty() const { return adds.empty() && removes.empty(); }
  // Returns the batch for the index. Do not call it under the lock.
  IndexBatch Records() const;
};

class IndexCommits {
 public:
  static constexpr size_t kMostRecords = 64;  // as many as one hold can make or take note of
  static constexpr std::chrono::seconds kRetry{1};
  // An index that refuses batches for this long counts as one that fails.
  static constexpr std::chrono::seconds kRefusalPatience{30};

  // ---- a device joins: with this mark; it has this record; it has no more
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
  // Both take the first one out, so that no batch takes it. REQUIRES: there is one.
  PendingAdd TakeAdd();
  PendingRemove TakeRemove();
  // For a device that the store lets go of. REQUIRES: no add waits, and no batch is under way.
  void Clear();

  // ---- a batch is made
  bool MayBegin(MonotonicTime now) const {
    return !under_way_ && anyone_waits() && now >= retry_at_;
  }
  // Returns a batch with the removals that it may have.
  CommitBatch TakeRemoves();
  // Returns the next add that the batch may have; none: it is full, or no add may go with it.
  std::optional<PendingAdd> TakeAddFor(const CommitBatch& batch);
  // Adds the removal of a record that an add of the batch overwrites.
  void RemoveWith(CommitBatch& batch, PendingRemove replaced);
  // Begins the batch and gives its adds their sequences. `keeps` is asked for each removal: true if
  // the index has another record under that name, which has to stay.
  void Begin(CommitBatch& batch, absl::FunctionRef<bool(const ChunkId&)> keeps,
             const UnsavedRecency& recency);
  bool under_way() const { return under_way_; }

  // ---- what became of it
  void NoteCommitted(const CommitBatch& batch) {
    KVKEEP_CHECK(under_way_ && batch.last >= committed_);
    committed_ = batch.last;
  }
  // Returns whether the batch or sync is to be tried again unchanged: the index refused it, and has
  // not refused for long.
  bool IsPutOff(const absl::Status& answer, MonotonicTime now);
  void NoteTaken() { refused_since_.reset(); }  // the index took something else
  void WaitToRetry(MonotonicTime now) { retry_at_ = now + kRetry; }
  // Both put back what the batch has, from its end. It then waits and counts as before.
  void PutBack(PendingAdd add) {
    KVKEEP_CHECK(under_way_);
    adds_.push_front(std::move(add));
  }
  void PutBack(PendingRemove remove) {
    KVKEEP_CHECK(under_way_);
    remove.with_add = false;
    // Removals are in the order of their numbers. A smaller number makes others wait longer, not
    // less.
    if (!removes_.empty()) remove.number = std::min(remove.number, removes_.front().number);
    removes_.push_front(std::move(remove));
  }
  // Ends the batch. REQUIRES: the states of the chunks now say what the index has.
  void End() {
    KVKEEP_CHECK(under_way_);
    under_way_ = false;
  }
  // For a device that was opened anew: earlier refusals say nothing any more.
  void ForgetRefusals() {
    refused_since_.reset();
    retry_at_ = MonotonicTime(0);
  }

  // ---- who waits for removals
  // Return how many removals were asked for so far, and whether the index has all of the first
  // `asked`.
  uint64_t asked() const { return asked_; }
  bool HasRemoved(uint64_t asked) const { return asked < FirstRemoval(); }
  // Calls `done` when the index has every removal that was asked for up to now.
  void WaitForRemovals(StatusCallback done) { waiting_.emplace_back(asked_, std::move(done)); }
  // Answers waiters whose removals the index has. If `failed` is an error, answers the others with
  // it.
  void AnswerRemovals(const absl::Status& failed, Hold& hold);

  // Notes that the blocks of a removal are free, or that a chunk has them again.
  void EndFreeing(const ExtentList& extents);
  // Returns the blocks of all removals, including those of the batch under way and those that are
  // not stable yet.
  uint64_t freeing_blocks() const { return freeing_blocks_; }

  CommitSequence committed() const { return committed_; }  // the last one in the index
  // Returns whether nothing is to be committed, and the index says exactly what was committed.
  bool settled() const { return !anyone_waits() && !under_way_ && committed_ == assigned_; }

 private:
  // Returns the number of the first removal that the index does not have.
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
