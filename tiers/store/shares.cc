#include "tiers/store/shares.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

uint64_t Part(uint64_t whole, double part) {
  const double exact = static_cast<double>(whole) * part;
  return std::min(whole, static_cast<uint64_t>(exact));
}

}  // namespace

Shares::Shares(const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) {
    tenants_.push_back({.quota = claim.quota, .weight = claim.weight});
  }
  tenants_.push_back({});
}

void Shares::SetCapacity(uint64_t capacity) {
  double quotas = 0, weights = 0;
  for (const Tenant& tenant : tenants_) {
    quotas += static_cast<double>(tenant.quota);
    if (tenant.quota == 0) weights += tenant.weight;
  }
  const double scale = std::max(1.0, quotas / static_cast<double>(std::max<uint64_t>(1, capacity)));
  uint64_t left = capacity;
  for (Tenant& tenant : tenants_) {
    if (tenant.quota == 0) continue;
    tenant.share = std::min(left, Part(tenant.quota, 1 / scale));
    left -= tenant.share;
  }
  for (Tenant& tenant : tenants_) {
    if (tenant.quota == 0) tenant.share = Part(left, tenant.weight / std::max(1e-9, weights));
  }
}

void Shares::Give(TenantId tenant, uint64_t amount) { of(tenant).held.Give(amount); }

bool Shares::FitsQuota(TenantId tenant, uint64_t more) const {
  const Tenant& own = of(tenant);
  return own.quota == 0 || (more <= own.quota && own.held <= own.quota - more);
}

std::optional<TenantId> Shares::ChooseDonor(TenantId taker, uint64_t more,
                                            absl::FunctionRef<bool(TenantId)> can_give) const {
  if (can_give(nobody())) return nobody();
  std::optional<TenantId> most;
  uint64_t most_above = 0;
  for (uint32_t t = 0; t + 1 < tenants_.size(); ++t) {
    const TenantId tenant(t);
    const uint64_t held = tenants_[t].held + (tenant == taker ? more : 0);
    const uint64_t above = held - std::min(held, tenants_[t].share);
    // On a tie, prefer the taker.
    const bool more_than_most = above > most_above || (above == most_above && tenant == taker);
    if (above == 0 || !more_than_most || !can_give(tenant)) continue;
    most = tenant;
    most_above = above;
  }
  if (!most.has_value() && can_give(taker)) most = taker;
  return most;
}

}  // namespace kvkeep::store_internal
