// ReadQueue: promotions of one device that wait, and whose turn it is.
//
// Who asks takes turns: first the tenants, and of a tenant its sessions. So the long prompts of one
// engine, or the many engines of one tenant, do not keep everybody else waiting. A turn is
// kTurnBytes, long enough that a device reads runs; who took more with its last chunk sits out
// until the others have had as much. Within a session chunks go in the order in which they were
// asked for: an engine begins when a prompt is whole, and the first is whole soonest so.
//
// A plain part of the core's state: the core's lock protects it. Push and Pop cost the same however
// much waits; BytesBefore a step for each session of the tenant, and each tenant, that waits.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class ReadQueue {
 public:
  static constexpr int64_t kTurnBytes = 8ll << 20;

  // The session's tenant; whose the chunk is does not matter. No session: the store itself, for
  // that tenant.
  struct Asker {
    TenantId tenant;
    SessionToken session;
  };

  void Push(const Asker& asker, ChunkSlot slot, uint64_t bytes);
  bool empty() const { return tenants_.empty(); }
  // Who is next. REQUIRES: !empty().
  ChunkSlot front() const { return tenants_.front().front().front().slot; }
  void Pop();

  uint64_t bytes() const { return bytes_; }  // that wait
  // Of them, what comes before the last of `more` bytes that this asker would ask for now. As if
  // turns were short.
  uint64_t BytesBefore(const Asker& asker, uint64_t more) const;

 private:
  struct Read {
    ChunkSlot slot;
    uint64_t bytes;
  };

  // Queues whose owners take turns: the front one's it is. None of them is empty.
  template <typename Owner, typename Queue>
  class Turns {
   public:
    bool empty() const { return order_.empty(); }
    const Queue& front() const { return order_.front().queue; }
    Queue& front() { return order_.front().queue; }
    // Made when there is none: behind all others.
    Queue& Of(const Owner& owner, uint64_t more) {
      const auto [known, is_new] = places_.try_emplace(owner, order_.end());
      if (is_new) known->second = order_.insert(order_.end(), Waiting{.owner = owner});
      known->second->bytes += more;
      return known->second->queue;
    }
    // So much left the front one.
    void Charge(uint64_t bytes) {
      Waiting& waiting = order_.front();
      waiting.bytes -= bytes;
      waiting.balance -= static_cast<int64_t>(bytes);
      if (waiting.queue.empty()) {
        places_.erase(waiting.owner);
        order_.pop_front();
      } else if (waiting.balance <= 0) {
        order_.splice(order_.end(), order_, order_.begin());
      } else {
        return;
      }
      while (!order_.empty() && order_.front().balance <= 0) {
        order_.front().balance += kTurnBytes;
        if (order_.front().balance > 0) break;
        order_.splice(order_.end(), order_, order_.begin());
      }
    }
    uint64_t BytesOf(const Owner& owner) const {
      const auto known = places_.find(owner);
      return known == places_.end() ? 0 : known->second->bytes;
    }
    // Null: it has none.
    const Queue* Find(const Owner& owner) const {
      const auto known = places_.find(owner);
      return known == places_.end() ? nullptr : &known->second->queue;
    }
    // What goes before the last of the owner's first `own` bytes: these, and as much of each other.
    uint64_t BytesWithin(const Owner& owner, uint64_t own) const;

   private:
    struct Waiting {
      Owner owner;
      Queue queue{};
      uint64_t bytes = 0;
      int64_t balance = kTurnBytes;  // what is left of its turn
    };

    std::list<Waiting> order_;
    std::map<Owner, typename std::list<Waiting>::iterator> places_;
  };
  using OfSession = std::deque<Read>;
  using OfTenant = Turns<SessionToken, OfSession>;

  Turns<TenantId, OfTenant> tenants_;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep::store_internal
