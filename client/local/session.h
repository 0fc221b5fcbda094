// LocalSession: one connection to the daemon's local socket: requests in flight, the thread that
// reads their replies, releases that wait for a request to go along with, and the event socket.
//
// Threads. A thread that waits for its call reads the socket itself (ReadUntil): no hop to another
// thread. When several wait, one reads for all, and hands the reading on when its own call is done.
// While nobody waits, the background thread (Serve) reads. It also answers pings, ends calls by
// their deadline, and sends the releases that no request took along.
//
// Every call's callback runs exactly once, without a lock of the session held. A reply that comes
// after its call's deadline goes to the call's `late`. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "client/internal/await.h"
#include "client/internal/fork_guard.h"
#include "client/internal/mappings.h"
#include "client/local/handshake.h"
#include "proto/local/message.h"
#include "tiers/base/busy_poll.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class LocalSession : public std::enable_shared_from_this<LocalSession> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // The body of a reply, with the descriptors that came with it.
  struct Reply {
    local::BodyReader body;
    std::vector<UniqueFd> descriptors;
  };
  // Gets the reply, or the call's error. Returns INTERNAL if the reply breaks the protocol, which
  // ends the session.
  using Done = absl::AnyInvocable<absl::Status(absl::StatusOr<Reply>) &&>;

  struct Call {
    local::Kind kind{};
    Time deadline;
    Done done;
    // Called for a reply after the deadline. Destroyed unrun with the session.
    absl::AnyInvocable<void(Reply) &&> late;
    // Called when a put's memory is no longer read: the daemon said so or answered, before `done`
    // or `late`, or nothing was sent. Destroyed unrun with the session, if that is unknown. May be
    // empty.
    absl::AnyInvocable<void()> copied;
  };

  LocalSession(Greeting greeting, uint64_t epoch, BusyPoll::Duration busy_poll);
  ~LocalSession();

  const local::Welcome& welcome() const { return welcome_; }
  uint64_t max_payload_bytes() const { return max_payload_bytes_; }  // of a chunk
  const std::shared_ptr<Mappings>& mappings() const { return mappings_; }
  uint64_t epoch() const { return epoch_; }  // counts this client's attempts to open one, from 1
  bool over() const { return mappings_->over(); }
  // Returns whether the daemon takes absolute deadlines, by the same clock as ours.
  bool holds_deadlines() const { return clock_doubt_.has_value(); }
  // Returns a call's deadline by the daemon's clock, or earlier; 0: the daemon cannot hold one.
  uint64_t DeadlineNs(Time deadline) const;

  // Returns the id for the header of a request.
  uint64_t NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
  // Sends a request and runs call.done with its reply. `fds` are not taken over.
  void Send(uint64_t id, local::MessageWriter& request, Call call, std::span<const int> fds = {});

  // Has the daemon look how much of a put in parts is there.
  void TellOfParts();

  // For a thread that is going to wait: ReadUntil awaits the call that Send registers here.
  struct Blocking {
    std::shared_ptr<LocalSession> session;  // null: nothing was sent
    Time deadline;
  };
  class BlockingScope {
   public:
    explicit BlockingScope(Blocking* blocking);
    ~BlockingScope();

   private:
    Blocking* const before_;
  };
  // Returns whether this thread is inside a BlockingScope, and ends that, as it is for the next
  // call only.
  static bool TakeBlocking();
  // Reads replies, for all threads, until `waiting` is done; its call ends by `deadline`.
  void ReadUntil(Waiting* waiting, Time deadline);

  // Gives back all but the first `keep_keys` keys of a lease, with the next request or soon.
  void QueueRelease(uint64_t lease, uint32_t keep_keys);
  // Takes the queued releases, to go along with a request.
  std::vector<local::ReleaseEntry> TakeReleases();
  // Sends the queued releases, and `also`, in a message of their own; `done` gets the daemon's
  // answer.
  void SendReleases(std::optional<local::ReleaseEntry> also, Time deadline,
                    absl::AnyInvocable<void(absl::Status) &&> done);

  // Runs the background thread's part; returns the reason when the session is over. Calls `tend`
  // now and then, after Nudge, and at the time that `tend` returns.
  using Tend = absl::FunctionRef<Time()>;
  absl::Status Serve(Tend tend);
  // Wakes Serve to tend.
  void Nudge() {
    nudged_.store(true, std::memory_order_release);
    Wake();
  }
  // Ends the session for the reason `why`; calls in flight end with `for_calls`. Only the first
  // call counts. Returns after the callbacks of all calls in flight, except callbacks that run on
  // other threads now.
  void Break(const absl::Status& why, const absl::Status& for_calls);
  void Break(const absl::Status& why) { Break(why, why); }
  // Waits until no callback runs any more. REQUIRES: Break was called.
  void AwaitCallbacks();

 private:
  enum class Turn { kDone, kRead, kOverdue, kClosed };
  struct Pending {
    Call call;
    bool late = false;  // its deadline has passed and `done` has run
  };

  absl::Status Register(uint64_t id, Call& call);
  absl::Status Transmit(std::span<const std::byte> message, std::span<const int> fds, Time deadline,
                        bool* started);
  absl::Status AwaitSendTurn(Time deadline);
  void EndSendTurn();
  Turn TakeTurn(Waiting* waiting, Time deadline);
  void LeaveReading();
  void HandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads a message. Returns false if there was none. REQUIRES: this thread is the reader.
  bool ReadSome(int flags);
  bool ReadBy(Time deadline);
  bool SleepAndRead(Time deadline);
  void Dispatch(local::Message message);
  void Finish(Call call, absl::StatusOr<Reply> reply);
  // Withdraws a request of which nothing was sent.
  void Withdraw(uint64_t id);
  // Ends calls whose deadline has passed.
  void ExpireOverdue();

  struct Plan {
    bool closed = false;
    bool read = false;     // the thread must read: no other thread waits, and replies are due
    bool release = false;  // queued releases are due
    Time wake_at = Time::max();
  };
  Plan MakePlan();
  void ReadInBackground();
  bool ReadEvents();
  void Wake();

  const local::Welcome welcome_;
  const uint64_t max_payload_bytes_;
  const uint64_t epoch_;
  const std::optional<std::chrono::nanoseconds> clock_doubt_;
  const std::shared_ptr<Mappings> mappings_;
  const int socket_;  // of the mappings
  const GuardedFd events_;
  const GuardedFd wake_;  // an eventfd that wakes the background thread
  std::atomic<uint64_t> next_id_{2};
  std::atomic<bool> nudged_{false};

  // Used by the reading thread only.
  std::vector<std::byte> buffer_;
  local::MessageAssembler assembler_;
  BusyPoll busy_;

  Mutex mu_;
  CondVar send_turn_;
  CondVar callbacks_done_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  int waiters_ ABSL_GUARDED_BY(mu_) = 0;  // threads in ReadUntil
  int running_ ABSL_GUARDED_BY(mu_) = 0;  // callbacks that have not returned
  int live_ ABSL_GUARDED_BY(mu_) = 0;     // calls that are not late
  std::vector<Waiting*> followers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Pending> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<local::ReleaseEntry> releases_ ABSL_GUARDED_BY(mu_);
  Time releases_since_ ABSL_GUARDED_BY(mu_);  // the oldest one's
  Time last_release_ ABSL_GUARDED_BY(mu_);
  bool ticking_ ABSL_GUARDED_BY(mu_) = false;  // the background thread looks every millisecond
};

}  // namespace kvkeep::client
