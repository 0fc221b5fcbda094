// ReadQueue: the promotions that wait for one device, in the order of their turns.
//
// Requesters take turns (fair_queue.h): tenants first, then the sessions of a tenant. So the long
// prompts of one engine, or the many engines of one tenant, do not keep everybody else waiting.
// Within a session chunks go in the order in which they were asked for: an engine begins when a
// prompt is whole, and this order makes the first prompt whole soonest.
//
// It is a plain part of the store's state. The store's lock protects it.
#pragma once

#include <cstdint>
#include <deque>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/fair_queue.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class ReadQueue {
 public:
  // `tenant` is the session's, which need not own the chunk. Without a session, the store itself
  // asks, for that tenant.
  struct Requester {
    TenantId tenant;
    SessionToken session;
    bool operator==(const Requester&) const = default;
  };
  // Stands for all other nodes of the fleet, which have no sessions here. No session gets it.
  static constexpr SessionToken kPeers{.bytes = {0x70}};

  void Push(const Requester& requester, ChunkSlot slot, uint64_t bytes);
  bool empty() const { return tenants_.empty(); }
  // Returns the chunk that is read next. REQUIRES: !empty().
  ChunkSlot front() const { return tenants_.front().front().front().slot; }
  void Pop();

  uint64_t bytes() const { return tenants_.bytes(); }  // of all that wait
  // Returns an upper bound on the bytes that are read before `more` further bytes, if this
  // requester asked for those now.
  uint64_t BytesBefore(const Requester& requester, uint64_t more) const;

 private:
  struct Read {
    ChunkSlot slot;
    uint64_t bytes;
  };
  using OfTenant = FairQueue<SessionToken, std::deque<Read>>;

  FairQueue<TenantId, OfTenant> tenants_;
};

}  // namespace kvkeep::store_internal
