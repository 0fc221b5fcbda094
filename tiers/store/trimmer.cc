#include "tiers/store/trimmer.h"

namespace kvkeep::store_internal {

void Trimmer::Trim(Section& section) {
  TrimToQuotas(section);
  TrimToCapacities(section);
}

void Trimmer::TrimToQuotas(Section& section) {
  if (!tiers_.over_quota) return;
  const TenantId nobody = tiers_.shares.nobody();
  for (const auto& tier : tiers_.all()) {
    for (TenantId tenant(0); tenant != nobody; ++tenant) {
      while (space_.EvictOverQuota(*tier, tenant)) section.YieldIfSpent();
    }
  }
  // Checks all tenants after the last yield.
  bool over = false;
  for (TenantId tenant(0); tenant != nobody; ++tenant) {
    over = over || !tiers_.shares.FitsQuota(tenant, 0);
  }
  tiers_.over_quota = over;
}

void Trimmer::TrimToCapacities(Section& section) {
  if (!tiers_.over_capacity) return;
  for (const auto& own : chunks_.pools) {
    while (own->over_capacity() && chunks_.EvictOne(*own) != Evicted::kNone) section.YieldIfSpent();
  }
  for (const auto& tier : tiers_.all()) {
    while (space_.EvictOverCapacity(*tier)) section.YieldIfSpent();
  }
  // Checks all of them after the last yield, as a capacity may have changed in one.
  bool over = false;
  for (const auto& tier : tiers_.all()) over = over || tier->over_capacity();
  for (const auto& own : chunks_.pools) over = over || own->over_capacity();
  tiers_.over_capacity = over;
}

}  // namespace kvkeep::store_internal
