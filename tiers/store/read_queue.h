// ReadQueue: promotions of one device that wait, and whose turn it is.
//
// Requesters take turns (fair_queue.h): tenants first, then the sessions of a tenant. So the long
// prompts of one engine, or the many engines of one tenant, do not keep everybody else waiting.
// Within a session chunks go in the order in which they were asked for: an engine begins when a
// prompt is whole, and the first is whole soonest so.
//
// A plain part of the store's state: the store's lock protects it.
#pragma once

#include <cstdint>
#include <deque>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/fair_queue.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class ReadQueue {
 public:
  // The session's tenant; whose the chunk is does not matter. No session: the store itself, for
  // that tenant.
  struct Requester {
    TenantId tenant;
    SessionToken session;
    bool operator==(const Requester&) const = default;
  };

  void Push(const Requester& requester, ChunkSlot slot, uint64_t bytes);
  bool empty() const { return tenants_.empty(); }
  // The chunk that is read next. REQUIRES: !empty().
  ChunkSlot front() const { return tenants_.front().front().front().slot; }
  void Pop();

  uint64_t bytes() const { return tenants_.bytes(); }  // that wait
  // The most of them that comes before the last of `more` bytes, were this requester to ask for
  // those now.
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
