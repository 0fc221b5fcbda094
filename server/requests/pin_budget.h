// PinBudget: limits the bytes that gets by gRPC pin while they are sent, so that clients that do
// not read cannot hold all of G2. Each tenant has a limit; a session may use half of it.
//
// A tenant's limit does not depend on what others hold or wait for, so slow readers make only
// readers of the same tenant wait.
//
// A get asks before it pins a chunk, and says afterwards how large it is: each session may exceed
// the limits by one chunk. Waiting gets are woken in turn, and sessions take turns. A get that ends
// while it waits must call Leave; otherwise the budget would keep it. The end of a pin calls
// nothing back, as it may come anywhere inside gRPC: Poke, which must be called soon after, wakes
// waiters.
//
// Thread-safe. Must outlive its holds.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/store/types.h"

namespace kvkeep {

class PinBudget {
 public:
  struct Limits {
    std::vector<uint64_t> tenant_bytes;  // by TenantId; a tenant beyond its end has no limit
  };
  // The holder of a pin: the session that reads and its tenant, whichever tenant owns the chunk.
  struct Holder {
    TenantId tenant;
    SessionToken session;
  };
  struct Use {
    uint64_t bytes = 0;
    uint64_t limit_bytes = UINT64_MAX;
    uint64_t waits = 0;    // times that a get of this tenant had to wait
    uint64_t waiting = 0;  // gets that wait now
  };
  // Wakes one waiter. Returns false if that waiter is gone; then the next one is woken instead.
  using Wake = absl::AnyInvocable<bool()>;
  // Names a waiter. 0: none.
  using Ticket = uint64_t;

  // The bytes of one pin, held until this is destroyed.
  class Hold {
   public:
    Hold() = default;
    Hold(PinBudget* budget, const Holder& holder, uint64_t bytes)
        : budget_(budget), holder_(holder), bytes_(bytes) {}
    Hold(Hold&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          holder_(other.holder_),
          bytes_(other.bytes_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (budget_ != nullptr) budget_->GiveBack(holder_, bytes_);
    }

   private:
    PinBudget* budget_ = nullptr;
    Holder holder_;
    uint64_t bytes_ = 0;
  };

  explicit PinBudget(const Limits& limits) : limits_(limits) {}

  // Returns whether the session may pin one more chunk now.
  bool HasRoom(const Holder& holder);
  // Like HasRoom. If there is no room, Poke calls `wake` once when asking again may help, and
  // `ticket` is for Leave. A woken waiter that no longer needs room must call Poke.
  bool HasRoomOr(const Holder& holder, Wake wake, Ticket* ticket);
  // Ends the wait. No-op if the waiter was woken already.
  void Leave(const Holder& holder, Ticket ticket);
  Hold Take(const Holder& holder, uint64_t bytes);
  Use UseOf(TenantId tenant) const;
  size_t sessions() const {  // that hold or wait
    MutexLock lock(&mu_);
    return sessions_.size();
  }
  // A tenant or session that holds more than a new limit keeps what it holds.
  void SetLimits(const Limits& limits) {
    MutexLock lock(&mu_);
    limits_ = limits;
  }
  // Wakes the waiters that may go on. Do not call with a lock held that a wake takes.
  void Poke();

 private:
  struct Session {
    TenantId tenant;
    uint64_t bytes = 0;
    std::map<Ticket, Wake> waiting;  // in the order in which they came
    uint64_t turn = 0;               // while somebody waits
  };
  struct Tenant {
    uint64_t bytes = 0, waits = 0, waiting = 0;
    std::map<uint64_t, SessionToken> turns;  // sessions with somebody waiting
  };
  using Sessions = absl::flat_hash_map<SessionToken, Session>;
  void GiveBack(const Holder& holder, uint64_t bytes);
  uint64_t LimitOf(TenantId tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Room(TenantId tenant, uint64_t session_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t SessionBytes(const Holder& holder) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes one of the session's waiters, and the session itself if nothing needs it any more.
  Wake TakeOut(Sessions::iterator session, Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the session whose turn it is, among those that have room.
  Sessions::iterator InTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the wake of the next waiter; empty: none.
  Wake Next();

  std::atomic<uint64_t> waiting_{0};
  mutable Mutex mu_;
  Limits limits_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TenantId, Tenant> tenants_ ABSL_GUARDED_BY(mu_);  // ever held or waited
  Sessions sessions_ ABSL_GUARDED_BY(mu_);                              // all that hold or wait
  uint64_t next_turn_ ABSL_GUARDED_BY(mu_) = 1;
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace kvkeep
