// Granter: grants leases for what a lookup found, in slices, shortened from the end where not all
// fits.
//
// Three passes over what was found: pin what is in G2, so that making room for the rest does not
// push it out; bring the rest there, one by one from the head; tell the places. What is not pinned
// yet may go while the lock is let go of: then it counts as absent.
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

// A lease in the making: its pins are not the session's yet.
struct Grant {
  void Reserve();
  const LookupRequest& request;
  LookupState& lookup;
  std::shared_ptr<LeaseHolder> holder;  // the session's; the chunks may be another tenant's
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

  // Grants what the request asks for, or tells of the lease that the same request has already.
  // `tenant` owns the chunks. An error: the session may not have it, or is closed. May yield.
  absl::Status GrantLease(Section& section, const SessionToken& token, TenantId tenant,
                          Grant& grant) STORE_LOCKED;

 private:
  bool PinForLease(Grant& grant, size_t i) STORE_LOCKED;
  // Takes the keys from that of entry `end` on out of the grant.
  void Shorten(Section& section, Grant& grant, size_t end) STORE_LOCKED;
  void PinWhatIsInG2(Section& section, Grant& grant) STORE_LOCKED;
  void BringTheRest(Section& section, TenantId tenant, Grant& grant) STORE_LOCKED;
  // Adds as many places as this hold may; yields when there are more.
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
