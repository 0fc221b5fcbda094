// PutTasks: cuts the pieces of one put's round into tasks, and says which may run. Small pieces
// share a task and a large one has its own, so a task is about a piece. Tasks are posted in order,
// each once its pieces are ready. It runs nothing itself: the put posts the tasks that Post says.
//
//   Plan -> NoteReady -> Post -> PiecesOf -> End -> NoteDone
//              \______________________________/          Plan again, once all pieces are done
//
// Thread-safe but for Plan and PostOnly, which come between rounds.
#pragma once

#include <absl/functional/function_ref.h>

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "server/local/put_source.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class PutTasks {
 public:
  // At most `most_running` tasks of the put run at a time.
  explicit PutTasks(size_t most_running) : most_running_(most_running) {}

  // Begins a round with these pieces. REQUIRES: all pieces of the round before are done.
  using BytesOf = absl::FunctionRef<uint64_t(const PutPiece&)>;
  void Plan(std::vector<PutPiece> pieces, BytesOf bytes_of);
  // The round's pieces; they stay where they are until the next round.
  std::span<const PutPiece> pieces() const { return pieces_; }
  // Returns how many tasks the round has.
  size_t count();

  // As PutSource::Put::OnReady. Calls that come before a round, or after it, do no harm.
  void NoteReady(size_t pieces);
  // Returns the tasks to post now.
  struct Range {
    size_t first = 0, end = 0;
    size_t size() const { return end - first; }
  };
  Range Post();
  // Makes the only task, 0, ready, as one that was posted. REQUIRES: count() is 1 and it is not
  // posted.
  void PostOnly();
  // REQUIRES: Post or End returned the task, and it has not ended.
  std::span<const PutPiece> PiecesOf(size_t task);
  // A task has run. Returns the task that this thread must run next, which `goes_on` allows; none:
  // others may be posted in its place.
  std::optional<size_t> End(bool goes_on);
  // Notes that `pieces` pieces are done. Returns true if they were the round's last.
  bool NoteDone(size_t pieces);

 private:
  void NoteReadyTasks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t most_running_;
  std::vector<PutPiece> pieces_;
  std::atomic<size_t> left_{0};  // of pieces_, not done

  Mutex mu_;
  std::vector<size_t> starts_ ABSL_GUARDED_BY(mu_) = {0};  // in pieces_; one more: the end
  size_t pieces_before_ ABSL_GUARDED_BY(mu_) = 0;          // in earlier rounds
  size_t ready_pieces_ ABSL_GUARDED_BY(mu_) = 0;           // of all rounds, the leading ones
  // Tasks of this round that may be posted, were posted; posted ones that did not end.
  size_t ready_ ABSL_GUARDED_BY(mu_) = 0, posted_ ABSL_GUARDED_BY(mu_) = 0;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
