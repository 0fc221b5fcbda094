// Shares: what each tenant holds of something that all of them take from - blocks of G3, slots of
// the chunk table, sessions -, how much it may hold, and who gives first when there is none left.
//
// A tenant may have a quota: it never takes more. Its share is what it can count on: its quota, or,
// without one, a part of what the quotas leave, by weight. Shares together are at most the
// capacity. So a tenant that holds no more than its share never has to give for another; and when
// all is full while a tenant may still have more, some other tenant holds more than its share.
//
// Beside the tenants there is Nobody, whose TenantId is the number of tenants. It holds what no
// tenant of this configuration can name, and gives before all others.
//
// A plain part of the store's state: the store's lock protects it. O(tenants) a question.
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

  // By TenantId. Shares are of no capacity yet.
  explicit Shares(const std::vector<Claim>& claims);

  // What there is to share. Quotas that are more than that together count in proportion.
  void SetCapacity(uint64_t capacity);

  // 0: none. Before the next SetCapacity.
  void SetQuota(TenantId tenant, uint64_t quota) { of(tenant).quota = quota; }

  void Take(TenantId tenant, uint64_t amount) { of(tenant).held.Take(amount); }
  void Give(TenantId tenant, uint64_t amount);

  TenantId nobody() const { return TenantId(static_cast<uint32_t>(tenants_.size() - 1)); }
  uint64_t held(TenantId tenant) const { return of(tenant).held; }
  uint64_t quota(TenantId tenant) const { return of(tenant).quota; }  // 0: none
  uint64_t share(TenantId tenant) const { return of(tenant).share; }
  // Whether it may hold so much if it holds nothing else.
  bool CanEverHold(TenantId tenant, uint64_t amount) const {
    return quota(tenant) == 0 || amount <= quota(tenant);
  }
  // Whether it may hold so much more.
  bool FitsQuota(TenantId tenant, uint64_t more) const;
  // The tenant to evict from so that `taker` can have `more`: the one furthest above its share,
  // where `taker` counts as if it had `more` already. `taker` itself if no tenant is above its
  // share. Considers tenants that `can_give`; none if that leaves no one.
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
