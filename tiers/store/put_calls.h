// PutCalls: the calls that put a chunk: space is reserved in G2, filled without the store's lock
// (handles.h), then published.
//
// Owns the reservations that are not sealed yet. The contracts of the calls stand in store.h and
// handles.h. They take the store's lock.
#pragma once

#include <string>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/handles.h"
#include "tiers/store/learning.h"
#include "tiers/store/puts.h"
#include "tiers/store/records.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/sessions.h"
#include "tiers/store/table_room.h"
#include "tiers/store/write_backer.h"

namespace kvkeep::store_internal {

class PutCalls {
 public:
  // The objects that it works on. All are borrowed. `beyond`: null if nothing lies beyond the node.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Records* records;
    WriteBacker* writes;
    Learning* learning;
    TableRoom* room;
    Sessions* sessions;
    ReuseMeter* reuse;
    BeyondNode* beyond;
  };
  PutCalls(const StoreOptions& options, const StoreDeps& deps, Parts parts);

  absl::StatusOr<ReserveResult> Reserve(const SessionToken& token, const PutRequest& request);
  absl::Status ChargeDiscarded(const SessionToken& token, uint64_t bytes, bool within_rate);

  // ---- for Reservation, which has a number here
  absl::StatusOr<SealOutcome> Seal(uint64_t reservation, const PutRequest& request);
  void Abort(uint64_t reservation);
  const StoreDeps& deps() const { return deps_; }
  Chunks& chunks() const { return chunks_; }

  Puts pending STORE_GUARDED;

 private:
  // A put of this chunk would add nothing: the answer is PRESENT.
  bool Available(const Chunk& chunk, bool durable) const STORE_LOCKED;
  void Reject(ReserveResult& result, TenantId tenant, RejectReason reason, std::string message)
      STORE_LOCKED;
  // The put is answered without looking for space: PRESENT, or rejected.
  bool AnsweredAtOnce(const PutRequest& request, const NamespaceSpec& ns, TenantId tenant,
                      ReserveResult& result) STORE_LOCKED;
  // Takes the lock. The reservation has its number, and lacks what is the request's.
  absl::Status ReserveSpace(const SessionToken& token, const PutRequest& request,
                            ReserveResult& result);

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  WriteBacker& writes_;
  Learning& learning_;
  TableRoom& room_;
  Sessions& sessions_;
  ReuseMeter& reuse_;
  BeyondNode* const beyond_;
  const StoreOptions& options_;  // as at the start
  const StoreDeps& deps_;
};

}  // namespace kvkeep::store_internal
