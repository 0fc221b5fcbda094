// TableRoom: frees a slot of a full table, by forgetting whole chunks.
//
// It forgets chunks of the tenant that is most above its share of the table, the least valuable
// chunks of G3 first. Owns nothing. The store's lock protects what it changes.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/recaller.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class TableRoom final : public Recaller::Host {
 public:
  // All are borrowed.
  TableRoom(Chunks* chunks, DeviceTiers* tiers, DeviceSpace* space)
      : chunks_(*chunks), tiers_(*tiers), space_(*space) {}

  // Forgets chunks until a slot is free for a chunk of `tenant`. Returns false if no chunk can be
  // forgotten. May yield.
  bool MakeRoomInTable(Section& section, TenantId tenant) STORE_LOCKED override;

 private:
  // Forgets one chunk of the tenant's: one of G3 if `of_g3`, else one of G2.
  Evicted ForgetOne(TenantId tenant, bool of_g3) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  DeviceSpace& space_;
};

}  // namespace kvkeep::store_internal
