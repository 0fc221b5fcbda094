// Finder: looks up the chunks of a call, and tells the eviction policies what was asked for.
//
// From the tail to the head, in slices of one hold each, as the policies want it: so no slot has to
// outlive its slice. Chunks that G3's admission has not wanted so far are offered again, and so is
// what is to be written beyond the node once it is used.
//
// Owns nothing; the store's lock protects what it changes.
#pragma once

#include <chrono>
#include <span>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/learning.h"
#include "tiers/store/lookup_state.h"
#include "tiers/store/promotions.h"
#include "tiers/store/section.h"
#include "tiers/store/write_backer.h"

namespace kvkeep::store_internal {

class Finder {
 public:
  enum class Tells : uint8_t { kNobody, kG2, kAll };  // which policies of the request

  // What it works on; all are borrowed. `beyond`: null: nothing lies beyond the node.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    WriteBacker* writes;
    Learning* learning;
    Promotions* promotions;
    BeyondNode* beyond;
  };
  Finder(const Clock* clock, Parts parts);

  // Finds the chunks of the call; `tenant` owns them. May yield.
  void FindAll(Section& section, TenantId tenant, LookupState& lookup, Tells tells) STORE_LOCKED;
  // How long it takes until all that was found is in G2. Before any read of it is begun.
  std::chrono::nanoseconds PromotionTime(const LookupState& lookup) const STORE_LOCKED;

 private:
  using Link = EvictionPolicy::ChainLink;
  using Slice = EvictionPolicy::Slice;

  void FindSlice(LookupState& lookup, size_t begin, size_t end) STORE_LOCKED;
  // Notes which of the key's chunks are still to be read from G3. `found`: of its parts.
  void NoteToRead(std::span<const Link> found, LookupState& lookup) STORE_LOCKED;
  void TellPolicies(TenantId tenant, LookupState& lookup, std::span<const Link> found, Slice slice)
      STORE_LOCKED;
  void TellDevices(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                   MonotonicTime now, Slice slice) STORE_LOCKED;
  void TellG2(TenantId tenant, LookupState& lookup, std::span<const Link> found, MonotonicTime now,
              Slice slice) STORE_LOCKED;
  void OfferAgain(Section& section, const LookupState& lookup) STORE_LOCKED;

  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  WriteBacker& writes_;
  Learning& learning_;
  Promotions& promotions_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
