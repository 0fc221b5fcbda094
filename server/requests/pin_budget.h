// PinBudget: how many bytes gets by gRPC may keep in memory while they are sent, so that clients
// who do not read cannot hold all of G2: a limit for each tenant, half of it for one session.
//
// A tenant's limit is its own: what others hold or wait for is not its business, so that a storm of
// slow readers makes nobody wait but readers of the same tenant.
//
// A get asks before it pins a chunk, and says afterwards how large that is: each limit is passed by
// one chunk at most for every session. Who must wait is woken in turn, sessions by turns too; who
// ends before says so, else it would be kept.
// Nothing is called back when a pin ends, as that may be anywhere inside gRPC: Poke wakes, and
// somebody calls it soon.
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
  // Whose pin it is: the tenant of the session that reads, whoever owns the chunk.
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
  // Wakes one waiter. False: that waiter is gone, and the next one is woken instead.
  using Wake = absl::AnyInvocable<bool()>;
  // Names a waiter. 0: none.
  using Ticket = uint64_t;

  // What one pin takes, until it is destroyed.
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

  // Whether the session may pin one more chunk now.
  bool HasRoom(const Holder& holder);
  // The same; if not, `wake` is called once, by Poke, when it may be worth to ask again. Who was
  // woken and has no use for it pokes. `ticket` is then for Leave.
  bool HasRoomOr(const Holder& holder, Wake wake, Ticket* ticket);
  // Waits no more. Nothing happens when it was woken already.
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
  // Wakes the waiters that may go on. Not while a lock is held that a wake takes.
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
  // Takes one of the session out of those who wait; gone is the session that nobody needs any more.
  Wake TakeOut(Sessions::iterator session, Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of all sessions that have room the one whose turn it is.
  Sessions::iterator InTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next to be woken; empty: none.
  Wake Next();

  std::atomic<uint64_t> waiting_{0};
  mutable Mutex mu_;
  Limits limits_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TenantId, Tenant> tenants_ ABSL_GUARDED_BY(mu_);  // that ever held or waited
  Sessions sessions_ ABSL_GUARDED_BY(mu_);                              // those that hold or wait
  uint64_t next_turn_ ABSL_GUARDED_BY(mu_) = 1;
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace kvkeep
