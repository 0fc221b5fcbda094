#include "tiers/store/table_room.h"

namespace kvkeep::store_internal {

Evicted TableRoom::ForgetOne(TenantId tenant, bool of_g3) {
  for (const auto& tier : tiers_.all()) {
    if (!of_g3) break;
    const Evicted evicted = space_.EvictOne(*tier, tenant);
    if (evicted != Evicted::kNone) return evicted;
  }
  if (tenant == chunks_.slot_shares.nobody()) return Evicted::kNone;
  return chunks_.EvictOne(chunks_.pool(tenant));
}

bool TableRoom::MakeRoomInTable(Section& section, TenantId tenant) {
  constexpr int kMostVictims = 64;  // victims of G3 that stay, since G2 has them too
  int victims = 0;
  const auto can_give = [&](TenantId t) STORE_LOCKED {
    if (victims < kMostVictims && tiers_.CanGive(t)) return true;
    return t != chunks_.slot_shares.nobody() && chunks_.pool(t).policy->HasVictim();
  };
  while (chunks_.table.full()) {
    // Eviction parks chunks that cannot go, so a tenant with no others is not asked again.
    const std::optional<TenantId> from = chunks_.slot_shares.ChooseDonor(tenant, 1, can_give);
    if (!from.has_value()) break;
    const bool of_g3 = victims < kMostVictims;
    if (ForgetOne(*from, of_g3) == Evicted::kOne) {
      victims += of_g3;
      chunks_.tenant_counters[from->value()].forgotten += *from != tenant;
    }
    section.YieldIfSpent();
  }
  return !chunks_.table.full();
}

}  // namespace kvkeep::store_internal
