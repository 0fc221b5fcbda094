// Finder: looks up the chunks of a call, and tells the eviction policies what was asked for.
//
// It goes from the tail to the head, as the policies want it, in slices of one hold each. So no
// slot has to outlive its slice. It offers chunks again that G3's admission has not wanted so far,
// and chunks that are written beyond the node once they are used.
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
  enum class Tells : uint8_t { kNobody, kG2, kAll };  // the policies that are told of the request

  // The objects that it works on. All are borrowed. `beyond`: null if nothing lies beyond the node.
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
  // Returns how long it takes until all chunks that were found are in G2. Call it before any of
  // their reads begins.
  std::chrono::nanoseconds PromotionTime(const LookupState& lookup) const STORE_LOCKED;
  // Returns the time until all that is on its way from beyond the node is here.
  std::chrono::nanoseconds BeyondTime(const LookupState& lookup) const STORE_LOCKED;

 private:
  using Link = EvictionPolicy::ChainLink;
  using Slice = EvictionPolicy::Slice;

  void FindSlice(LookupState& lookup, size_t begin, size_t end) STORE_LOCKED;
  // Notes which of a key's chunks are still to be read from G3. `found`: the links of its parts.
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
