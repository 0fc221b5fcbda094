// PutJob: one put under way. It reserves space for the chunks, copies them (on the copy executor,
// except for small ones), and makes the answers. Its PutSource has the payloads, and knows which
// pieces are there.
//
// A put may have a time after which its client writes the source again (PutPlan::until): a piece is
// stored only if it was read by then.
//
// A put goes in rounds: each copies as many chunks as the limit of reserved bytes lets in. Nearly
// always one round is enough. The constructor and Reserve run on the loop, between rounds.
//
// Small chunks share a task, large ones are split by pieces, so all copy threads work on one. A
// thread does a few tasks of one put, then others get their turn. A round that is small enough is
// copied on the loop (LocalLimits::loop_copy_bytes). A chunk is sealed by the thread that copied
// its last piece. The callbacks run on the loop, never within a call.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/put_plan.h"
#include "server/local/put_source.h"
#include "server/local/put_tasks.h"
#include "server/requests/chunk_put.h"
#include "server/requests/gauge.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class PutJob : public std::enable_shared_from_this<PutJob>, private PutSource::Put {
 public:
  struct Callbacks {
    std::function<void()> more;               // a round is over, chunks wait: Reserve
    std::function<void()> fetched;            // nothing more is read; once; may be null
    std::function<void()> copied;  // before `done`: all is read, durable chunks are awaited
    std::function<void(const PutJob&)> done;  // once; nothing of the client's memory is read then
  };

  // The timeout of a GPU's plan begins now.
  PutJob(std::shared_ptr<const LocalContext> context, PutPlan plan, Callbacks callbacks);

  // Reserves space for the next chunks, as many as fit. A chunk over the limit of reserved bytes
  // waits for the chunks of this round and, if `may_wait`, for the session's other puts; otherwise
  // it is rejected. An error fails the whole put.
  absl::Status Reserve(const SessionToken& session, bool may_wait);
  // True if chunks remain unreserved.
  bool waits() const { return next_chunk_ < chunks_.size(); }
  // True if there is a round to copy.
  bool reserved() const { return !tasks_.pieces().empty() || !waits(); }
  // Copies the round; on the loop thread if `on_loop` and the round is small. Returns true if it
  // was copied there. REQUIRES: reserved(), and the round before is over.
  bool Copy(bool on_loop);
  // Skips the copies that have not begun; their chunks are given up. Copies by a GPU end first.
  // Call on the loop.
  void Cancel();

  // For a put in parts: looks whether more bytes are there, and copies them.
  void Look() { source_->Look(); }
  // Returns the first piece that is not there; none if nothing is waited for.
  std::optional<uint64_t> awaited_piece() { return source_->awaited_piece(); }
  // Gives up the missing bytes: their chunk is rejected. Returns false if nothing was waited for.
  bool GiveUp(const absl::Status& why) { return source_->GiveUp(why); }

  // Returns, once done, why there are no answers; OK: AppendAnswers has them.
  const absl::Status& status() const { return status_; }
  void AppendAnswers(local::MessageWriter* reply) const;

 private:
  struct Chunk {
    ChunkPut put;
    std::atomic<uint32_t> pieces_left{0};
    std::atomic<bool> lost{false};  // its source does not bring all of it; failures_ says why
  };

  // ---- calls of the source
  std::shared_ptr<const void> Hold() override { return shared_from_this(); }
  const ExtentList& extents(size_t chunk) const override;
  void OnReady(size_t pieces) override;
  void Lose(size_t chunk, const absl::Status& why) override;
  void OnFetched() override;

  // Returns false if the chunk waits.
  absl::StatusOr<bool> ReserveChunk(const SessionToken& session, size_t index, bool may_wait);
  void PlanRound(size_t first_chunk);
  // Called when the client's memory is no longer read; tells the client once, if it must be told.
  void DropMemory();
  // Returns whether this round may be copied on the loop.
  bool IsSmall();
  void PostTasks();
  // Returns the NUMA node of the space that the task fills.
  std::optional<int> NodeOf(size_t task);
  void RunTasks(size_t task, PutSource::Wait wait);
  void CopyPiece(const PutPiece& piece, PutSource::Wait wait);
  void FinishChunk(size_t index);
  void OnCopied();
  void AwaitDurable();
  void OnDurable(size_t index, const absl::Status& status);
  void PostDone();

  const std::shared_ptr<const LocalContext> context_;
  PutPlan plan_;
  const Callbacks callbacks_;
  std::vector<Chunk> chunks_;
  const std::unique_ptr<PutSource> source_;
  size_t next_chunk_ = 0;  // not reserved yet
  PutTasks tasks_;         // of this round
  bool dropped_ = false;   // memory was dropped, and the client told
  std::optional<GaugeHold> copying_;

  std::atomic<bool> cancelled_{false};
  std::atomic<size_t> durable_left_{0};

  Mutex mu_;
  // First failure of each chunk that failed; written while it is copied.
  std::vector<std::pair<size_t, absl::Status>> failures_ ABSL_GUARDED_BY(mu_);
  absl::Status seal_failure_ ABSL_GUARDED_BY(mu_);
  absl::Status status_;  // written before done is called
};

}  // namespace kvkeep
