// Granter: grants leases for the chunks that a lookup found, in slices. If not all of them fit, it
// shortens the lease from the end.
//
// It makes three passes over the chunks. The first pins those in G2, so that making room for the
// others does not evict them. The second brings the others into G2, one by one from the head. The
// third tells the places. A chunk that is not pinned yet may go during a yield, and then counts as
// absent.
//
// Owns nothing; the store's lock protects what it changes.
#pragma once

#include <memory>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/leases.h"
#include "tiers/store/lookup_state.h"
#include "tiers/store/promoter.h"
#include "tiers/store/section.h"
#include "tiers/store/served_meter.h"
#include "tiers/store/sessions.h"

namespace kvkeep::store_internal {

// A lease that is being granted. Its pins are not the session's yet.
struct Grant {
  void Reserve();
  const LookupRequest& request;
  LookupState& lookup;
  std::shared_ptr<LeaseHolder> holder;  // of the session; another tenant may own the chunks
  LookupResult result;
  std::vector<Lease::Entry> entries;
  std::vector<bool> pinned;  // by entry
  uint32_t keys = 0;
  uint64_t bytes = 0;          // of images
  uint64_t payload_bytes = 0;  // of what is pinned
  Served served;               // with its places
  bool shortened = false;
};

class Granter {
 public:
  // All are borrowed.
  Granter(Chunks* chunks, Sessions* sessions, Promoter* promoter, ServedMeter* served);

  // Grants the lease that the request asks for, or tells of the lease that the same request has
  // already. `tenant` owns the chunks. Returns an error if the session may not have the lease, or
  // is closed. May yield.
  absl::Status GrantLease(Section& section, const SessionToken& token, TenantId tenant,
                          Grant& grant) STORE_LOCKED;

 private:
  bool PinForLease(Grant& grant, size_t i) STORE_LOCKED;
  // Removes from the grant the key of entry `end` and all keys behind it.
  void Shorten(Section& section, Grant& grant, size_t end) STORE_LOCKED;
  void PinWhatIsInG2(Section& section, Grant& grant) STORE_LOCKED;
  void BringTheRest(Section& section, TenantId tenant, Grant& grant) STORE_LOCKED;
  // Adds as many places as this hold may, and yields if there are more.
  void AddPlaces(Section& section, const std::vector<Lease::Entry>& entries, size_t* next,
                 LookupResult& result) STORE_LOCKED;
  absl::StatusOr<bool> TellKnownLease(Section& section, const SessionToken& token, Grant& grant)
      STORE_LOCKED;
  void File(Session& session, Grant& grant) STORE_LOCKED;

  Chunks& chunks_;
  Sessions& sessions_;
  Promoter& promoter_;
  ServedMeter& served_;
};

}  // namespace kvkeep::store_internal
