// Shares: divides something that all tenants take from, such as blocks of G3, slots of the chunk
// table, or sessions. It knows how much each tenant holds and may hold, and which tenant gives
// first when none is left.
//
// A tenant may have a quota, and never takes more. Its share is the amount that it can count on:
// its quota or, without one, a part of what the quotas leave, by weight. The shares together are at
// most the capacity. So a tenant that holds no more than its share never has to give for another.
// If all is full and a tenant holds less than its share, some other tenant holds more than its own.
//
// Beside the tenants there is Nobody, whose TenantId is the number of tenants. It holds what no
// tenant of this configuration can name, and gives before all others.
//
// It is a plain part of the store's state. The store's lock protects it. A question costs
// O(tenants).
#pragma once

#include <absl/functional/function_ref.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/store/account.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class Shares {
 public:
  struct Claim {
    uint64_t quota = 0;  // 0: none
    double weight = 1;
  };

  // `claims`: by TenantId. All shares are 0 before SetCapacity.
  explicit Shares(const std::vector<Claim>& claims);

  // Sets the amount to share. If the quotas together are more, they count in proportion.
  void SetCapacity(uint64_t capacity);

  // 0: no quota. It takes effect at the next SetCapacity.
  void SetQuota(TenantId tenant, uint64_t quota) { of(tenant).quota = quota; }

  void Take(TenantId tenant, uint64_t amount) { of(tenant).held.Take(amount); }
  void Give(TenantId tenant, uint64_t amount);

  TenantId nobody() const { return TenantId(static_cast<uint32_t>(tenants_.size() - 1)); }
  uint64_t held(TenantId tenant) const { return of(tenant).held; }
  uint64_t quota(TenantId tenant) const { return of(tenant).quota; }  // 0: none
  uint64_t share(TenantId tenant) const { return of(tenant).share; }
  // Returns whether the tenant may hold `amount` if it holds nothing else.
  bool CanEverHold(TenantId tenant, uint64_t amount) const {
    return quota(tenant) == 0 || amount <= quota(tenant);
  }
  // Returns whether the tenant may hold `more` in addition.
  bool FitsQuota(TenantId tenant, uint64_t more) const;
  // Returns the tenant to evict from so that `taker` can have `more`: the one furthest above its
  // share, where `taker` counts as if it had `more` already. Returns `taker` itself if no tenant is
  // above its share. Considers only tenants for which `can_give` is true; none: there are none.
  std::optional<TenantId> ChooseDonor(TenantId taker, uint64_t more,
                                      absl::FunctionRef<bool(TenantId)> can_give) const;

 private:
  struct Tenant {
    uint64_t quota = 0;
    double weight = 0;
    uint64_t share = 0;
    Account held;
  };
  Tenant& of(TenantId tenant) {
    KVKEEP_CHECK(tenant.value() < tenants_.size());
    return tenants_[tenant.value()];
  }
  const Tenant& of(TenantId tenant) const {
    KVKEEP_CHECK(tenant.value() < tenants_.size());
    return tenants_[tenant.value()];
  }

  std::vector<Tenant> tenants_;  // the last one is nobody
};

}  // namespace kvkeep::store_internal
