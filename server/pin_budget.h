// PinBudget: how many bytes gets by gRPC may keep in memory while they are sent, so that clients
// who do not read cannot hold all of G2: a limit for one session, and one for all together.
//
// A get asks before it pins a chunk, and says afterwards how large that is: each limit is passed by
// one chunk at most for every session. Who must wait is woken in turn, sessions by turns too.
// Nothing is called back when a pin ends, as that may be anywhere inside gRPC: Poke wakes, and
// somebody calls it soon.
//
// Thread-safe. Must outlive its holds.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>

#include "tiers/base/mutex.h"
#include "tiers/store/types.h"

namespace kvkeep {

class PinBudget {
 public:
  struct Limits {
    uint64_t session_bytes = UINT64_MAX;
    uint64_t all_bytes = UINT64_MAX;
  };
  // False: whom it was for is gone; the next one is woken instead.
  using Wake = absl::AnyInvocable<bool()>;

  // What one pin takes, until it is destroyed.
  class Hold {
   public:
    Hold() = default;
    Hold(PinBudget* budget, const SessionToken& session, uint64_t bytes)
        : budget_(budget), session_(session), bytes_(bytes) {}
    Hold(Hold&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          session_(other.session_),
          bytes_(other.bytes_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (budget_ != nullptr) budget_->GiveBack(session_, bytes_);
    }

   private:
    PinBudget* budget_ = nullptr;
    SessionToken session_;
    uint64_t bytes_ = 0;
  };

  explicit PinBudget(const Limits& limits) : limits_(limits) {}

  // Whether `session` may pin one more chunk now.
  bool HasRoom(const SessionToken& session);
  // The same; if not, `wake` is called once, by Poke, when it may be worth to ask again. Who was
  // woken and has no use for it pokes.
  bool HasRoomOr(const SessionToken& session, Wake wake);
  Hold Take(const SessionToken& session, uint64_t bytes);
  // Who holds more than a new limit keeps it.
  void SetLimits(const Limits& limits) {
    MutexLock lock(&mu_);
    limits_ = limits;
  }
  // Wakes who may go on. Not with a lock held that a wake takes.
  void Poke();

 private:
  struct Session {
    uint64_t bytes = 0;
    std::deque<Wake> waiting;
  };
  void GiveBack(const SessionToken& session, uint64_t bytes);
  bool Room(uint64_t session_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return session_bytes < limits_.session_bytes && bytes_ < limits_.all_bytes;
  }
  // The next to be woken; empty: none.
  Wake Next();

  std::atomic<uint64_t> waiting_{0};
  Mutex mu_;
  Limits limits_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Those that hold or wait.
  absl::flat_hash_map<SessionToken, Session> sessions_ ABSL_GUARDED_BY(mu_);
  std::deque<SessionToken> turns_ ABSL_GUARDED_BY(mu_);  // sessions with somebody waiting
};

}  // namespace kvkeep
