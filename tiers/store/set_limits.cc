// Limits that may change while the store runs: what they come to for each tenant, and how what is
// held already is brought within new ones.
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

StoreOptions Core::ResolveLimits(StoreOptions options, const Arena& arena) {
  const uint64_t capacity = arena.capacity_bytes();
  if (options.tenants.empty()) options.tenants = {{.g2_segments = arena.segment_count()}};
  if (options.dirty_budget_bytes == 0) options.dirty_budget_bytes = capacity / 4;
  if (options.max_leased_bytes == 0) options.max_leased_bytes = capacity / 2;
  if (options.max_reserved_bytes == 0) options.max_reserved_bytes = capacity / 4;
  return options;
}

std::vector<Shares::Claim> Core::ClaimsOf(const StoreOptions& options, bool quotas) {
  std::vector<Shares::Claim> claims;
  for (const TenantOptions& tenant : options.tenants) {
    // Less than a block is none, which is not the same as no quota.
    const uint64_t blocks = std::max<uint64_t>(1, tenant.g3_quota_bytes / kBlockBytes);
    claims.push_back({.quota = quotas && tenant.g3_quota_bytes > 0 ? blocks : 0,
                      .weight = static_cast<double>(tenant.g2_segments)});
  }
  return claims;
}

double Core::PartOf(size_t tenant) const {
  return static_cast<double>(pools_[tenant]->capacity().value()) /
         static_cast<double>(deps_.arena->capacity_blocks().value());
}

double Core::WriteRate(const StoreOptions& options, size_t tenant) const {
  return PartOf(tenant) * static_cast<double>(options.g3_write_bytes_per_second);
}

G2Pool::Limits Core::PoolLimits(const StoreOptions& options, size_t tenant) {
  const double part = PartOf(tenant);
  // Rounded up: a share of a limit that allows a chunk must allow one.
  const auto share = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes / kBlockBytes) * part + 0.5);
  };
  const uint64_t leased = options.tenants[tenant].max_leased_bytes;
  return {.leased_blocks = leased > 0 ? leased / kBlockBytes : share(options.max_leased_bytes),
          .reserved_blocks = share(options.max_reserved_bytes),
          .dirty_blocks = share(options.dirty_budget_bytes)};
}

StoreOptions Core::options() {
  Section section(this);
  return limits_;
}

void Core::SetLimits(const StoreOptions& options) {
  const StoreOptions now = ResolveLimits(options, *deps_.arena);
  Section section(this);
  KVKEEP_CHECK(now.tenants.size() == pools_.size());
  limits_.max_sessions = now.max_sessions;
  limits_.max_leases_per_session = now.max_leases_per_session;
  limits_.max_leased_bytes = now.max_leased_bytes;
  limits_.max_reserved_bytes = now.max_reserved_bytes;
  limits_.dirty_budget_bytes = now.dirty_budget_bytes;
  limits_.scrub_bytes_per_second = now.scrub_bytes_per_second;
  limits_.g3_write_bytes_per_second = now.g3_write_bytes_per_second;
  session_shares_.SetCapacity(limits_.max_sessions);
  for (uint32_t t = 0; t < pools_.size(); ++t) {
    const TenantOptions& to = now.tenants[t];
    TenantOptions& own = limits_.tenants[t];
    KVKEEP_CHECK(own.name == to.name);
    // A rate that stays keeps what is owed of it.
    if (own.keys_per_second != to.keys_per_second || own.bytes_per_second != to.bytes_per_second) {
      rates_[t] = Rates(to.keys_per_second, to.bytes_per_second);
    }
    own.keys_per_second = to.keys_per_second;
    own.bytes_per_second = to.bytes_per_second;
    own.max_leased_bytes = to.max_leased_bytes;
    own.g3_quota_bytes = to.g3_quota_bytes;
    pools_[t]->limits = PoolLimits(limits_, t);
    if (limits_.g3_write_bytes_per_second > 0) {
      admissions_[t]->SetBytesPerSecond(WriteRate(limits_, t));
    }
  }
  const std::vector<Shares::Claim> claims = ClaimsOf(limits_, true);
  for (uint32_t t = 0; t < claims.size(); ++t) g3_shares_.SetQuota(TenantId(t), claims[t].quota);
  ShareG3();
  over_quota_ = true;
  TrimToNewQuotas(section);
}

// What is being read stays until a later Tick, and counts until then.
void Core::TrimToNewQuotas(Section& section) {
  if (!over_quota_) return;
  over_quota_ = false;
  for (const auto& tier : devices_) {
    for (TenantId tenant(0); tenant != g3_shares_.nobody(); ++tenant) {
      while (EvictOverQuota(*tier, tenant)) section.YieldIfSpent();
    }
  }
  for (TenantId tenant(0); tenant != g3_shares_.nobody(); ++tenant) {
    over_quota_ = over_quota_ || !g3_shares_.FitsQuota(tenant, 0);
  }
}

}  // namespace kvkeep::store_internal
