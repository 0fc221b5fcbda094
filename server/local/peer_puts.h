// PeerPuts: one peer's puts that are not answered yet, from message to reply. Puts wait for space
// in the order of arrival: behind the session's own puts and, where other sessions of the tenant
// hold the space, in PutLine.
//
//   waiting --Reserve--> copying --OnRoundOver, chunks wait--> waiting
//                           \---OnPutDone---> answered, gone
//
// One thread, the loop's. A put's callbacks hold this weakly, as the connection may be gone.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>

#include <deque>
#include <memory>
#include <optional>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/message_memory.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_session.h"
#include "server/local/put_job.h"
#include "server/local/put_line.h"

namespace kvkeep {

class PeerPuts : public std::enable_shared_from_this<PeerPuts>, private PutLine::Waiter {
 public:
  PeerPuts(std::shared_ptr<const LocalContext> context, std::shared_ptr<PeerSession> session,
           std::shared_ptr<PeerReplies> replies);
  ~PeerPuts() override;

  // Starts the put that a message asks for. It is answered later, and its end noted.
  // ResourceExhausted: there is no memory for the message.
  absl::Status Start(const local::Message& message, PutPlan plan);

  // Call when more of the puts in parts may be there.
  void Look();
  // Call now and then. Gives up puts in parts that got no piece for LocalLimits::grace, and answers
  // puts that waited too long for space.
  void OnTick(MonotonicTime now);
  // Starts the waiting puts that fit, in their order. After the end of the session they are
  // refused.
  void Advance();
  // Returns how many puts are not answered yet.
  size_t in_flight() const { return jobs_.size(); }

  // Skips the copies that have not begun, at the end of the session.
  void Cancel();
  // Call when the connection is gone: nothing more is answered. Idempotent.
  void End();

 private:
  // When a put's client is told, before the answer, that its memory is no longer read.
  enum class SaysCopied { kIfDurable, kOnceFetched };
  struct Job {
    local::Kind kind = local::Kind::kPut;
    uint64_t id = 0;  // of the message
    MonotonicTime began{0};
    bool copying = false;
    MessageHold held;
    std::shared_ptr<PutJob> put;
    std::optional<MonotonicTime> waits_since;  // for space
    // For a put in parts: the piece that it waited for at a tick, and since when.
    std::optional<uint64_t> awaited_piece;
    MonotonicTime since{0};
  };

  PutJob::Callbacks CallbacksOf(uint64_t number, uint64_t id, SaysCopied tells);
  void TellCopied(uint64_t id);
  void OnRoundOver(uint64_t number);
  void OnPutDone(uint64_t number, const PutJob& put);

  void GiveUpIfStalled(Job& job, MonotonicTime now);
  void AwaitSpace(Job& job);
  bool WaitedLong(const Job& job) const;
  bool TryAgain() override;
  PutLine& line() const;
  uint32_t tenant() const { return session_->identity().tenant.value(); }

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<PeerSession> session_;
  const std::shared_ptr<PeerReplies> replies_;
  uint64_t next_number_ = 1;
  absl::flat_hash_map<uint64_t, Job> jobs_;
  size_t copying_ = 0;            // of jobs_
  std::deque<uint64_t> waiting_;  // jobs with chunks that wait for space, in order
};

}  // namespace kvkeep
