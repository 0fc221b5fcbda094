#include "tiers/store/limits.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/scaled.h"

namespace kvkeep::store_internal {
namespace {

// While a part of the memory is missing, all limits of a tenant are smaller in the same ratio. But
// up to half of the memory that is there may be reserved, so that large chunks can be put.
G2Pool::Limits WithinMemory(const G2Pool::Limits& all, uint64_t there_blocks) {
  if (all.capacity_blocks <= there_blocks) return all;
  const auto part = [&](uint64_t blocks) {
    return Scaled(blocks, there_blocks, all.capacity_blocks);
  };
  const uint64_t reserved = std::min(all.reserved_blocks, there_blocks / 2);
  return {.capacity_blocks = there_blocks,
          .leased_blocks = part(all.leased_blocks),
          .reserved_blocks = std::max(part(all.reserved_blocks), reserved),
          .dirty_blocks = part(all.dirty_blocks)};
}

}  // namespace

StoreOptions Limits::Resolve(StoreOptions options, const StoreDeps& deps) {
  const Arena& arena = *deps.arena;
  if (options.tenants.empty()) options.tenants = {{.g2_segments = arena.segment_count()}};
  if (options.g2_capacity_bytes == 0) options.g2_capacity_bytes = arena.capacity_bytes();
  if (options.g3_capacity_bytes.empty()) {
    for (const StoreDeps::DeviceDeps& device : deps.devices) {
      // A device that is not there yet may use all of its capacity.
      options.g3_capacity_bytes.push_back(device.device != nullptr ? device.device->capacity_bytes()
                                                                   : UINT64_MAX);
    }
  }
  const uint64_t capacity = options.g2_capacity_bytes;
  if (options.dirty_budget_bytes == 0) options.dirty_budget_bytes = capacity / 4;
  if (options.max_leased_bytes == 0) options.max_leased_bytes = capacity / 2;
  if (options.max_reserved_bytes == 0) options.max_reserved_bytes = capacity / 4;
  return options;
}

std::vector<Shares::Claim> Limits::ClaimsOf(const StoreOptions& options, bool quotas) {
  std::vector<Shares::Claim> claims;
  for (const TenantOptions& tenant : options.tenants) {
    // At least one block: 0 blocks would mean no quota.
    const uint64_t blocks = std::max<uint64_t>(1, tenant.g3_quota_bytes / kBlockBytes);
    claims.push_back({.quota = quotas && tenant.g3_quota_bytes > 0 ? blocks : 0,
                      .weight = static_cast<double>(tenant.g2_segments)});
  }
  return claims;
}

double Limits::WriteRate(const StoreOptions& options, size_t tenant) const {
  return chunks_.part(tenant) * static_cast<double>(options.g3_write_bytes_per_second);
}

G2Pool::Limits Limits::PoolLimits(const StoreOptions& options, size_t tenant) {
  const double part = chunks_.part(tenant);
  // Rounds up, as a share of a limit that allows a chunk must allow one, too.
  const auto share = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes / kBlockBytes) * part + 0.5);
  };
  const uint64_t leased = options.tenants[tenant].max_leased_bytes;
  const uint64_t capacity = std::min(options.g2_capacity_bytes, deps_.arena->capacity_bytes());
  const G2Pool& own = *chunks_.pools[tenant];
  return WithinMemory(
      {.capacity_blocks = Scaled(own.built().value(), capacity, deps_.arena->capacity_bytes()),
       .leased_blocks = leased > 0 ? leased / kBlockBytes : share(options.max_leased_bytes),
       .reserved_blocks = share(options.max_reserved_bytes),
       .dirty_blocks = share(options.dirty_budget_bytes)},
      own.there_blocks());
}

Limits::Limits(const StoreOptions& options, const StoreDeps& deps, Parts parts)
    : options_(options),
      deps_(deps),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      space_(*parts.space),
      trimmer_(*parts.trimmer),
      writes_(*parts.writes),
      sessions_(*parts.sessions),
      scrubber_(*parts.scrubber),
      beyond_(parts.beyond),
      limits_(options) {
  for (size_t tenant = 0; tenant < chunks_.pools.size(); ++tenant) {
    chunks_.pools[tenant]->limits = PoolLimits(options_, tenant);
  }
  WriteBacker::Admissions admissions = MakeAdmissions(options_);
  writes_.SwapAdmissions(admissions);
  scrubber_.SetRate(options_.scrub_bytes_per_second);
}

void Limits::AddMemory(const std::vector<Extent>& extents) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  for (const Extent& extent : extents) {
    for (const auto& own : chunks_.pools) {
      if (own->Owns(extent.first)) own->AddMemory(extent);
    }
    chunks_.Count(work::kAllocate);
    section.YieldIfSpent();
  }
  for (size_t t = 0; t < chunks_.pools.size(); ++t) {
    chunks_.pools[t]->limits = PoolLimits(limits_, t);
  }
}

WriteBacker::Admissions Limits::MakeAdmissions(const StoreOptions& options) {
  WriteBacker::Admissions policies;
  for (size_t t = 0; t < options_.tenants.size(); ++t) {
    AdmissionOptions admission;
    admission.toucher = &chunks_.toucher;
    admission.bytes_per_second = WriteRate(options, t);
    admission.remembered_chunks =
        static_cast<uint32_t>(chunks_.part(t) * static_cast<double>(admission.remembered_chunks));
    policies.push_back(MakeAdmissionPolicy(options.g3_admission, admission));
  }
  return policies;
}

StoreOptions Limits::options() {
  Section section(&chunks_);
  return limits_;
}

absl::Status Limits::CheckCapacities(const StoreOptions& options) {
  const uint64_t built = std::max(options_.g2_capacity_bytes, deps_.arena->capacity_bytes());
  if (options.g2_capacity_bytes > built) {
    return absl::FailedPreconditionError(
        absl::StrCat("the capacity of G2, ", options.g2_capacity_bytes, " bytes, is more than the ",
                     built, " that were mapped at the start: a restart gives it more"));
  }
  for (size_t d = 0; d < tiers_.size(); ++d) {
    if (tiers_.at(d).presence == DeviceTier::Presence::kAway) continue;
    const NvmeDevice& device = *tiers_.at(d).device;
    const uint64_t capacity = options.g3_capacity_bytes[d];
    if (capacity <= device.capacity_bytes() || capacity == UINT64_MAX) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the capacity of ", device.dir(), ", ", options.g3_capacity_bytes[d],
                     " bytes, is more than the ", device.capacity_bytes(),
                     " that its files were made for: a restart makes them larger"));
  }
  for (size_t t = 0; t < chunks_.pools.size(); ++t) {
    const uint64_t capacity = PoolLimits(options, t).capacity_blocks;
    const uint64_t staying = chunks_.pools[t]->used_blocks() - chunks_.pools[t]->evictable_blocks;
    // A capacity that stays the same may not have been reached yet.
    if (staying <= capacity || capacity >= chunks_.pools[t]->limits.capacity_blocks) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the capacity of G2, of which ", capacity * kBlockBytes, " bytes would be tenant ",
        options.tenants[t].shown_name(), "'s, is less than the ", staying * kBlockBytes,
        " of it that are leased, in flight or not yet written to G3: try again, or take more"));
  }
  return absl::OkStatus();
}

absl::Status Limits::Set(const StoreOptions& options) {
  const StoreOptions now = Resolve(options, deps_);
  KVKEEP_CHECK(now.g3_capacity_bytes.size() == deps_.devices.size());
  WriteBacker::Admissions admissions;  // gets the old ones, which are destroyed without the lock
  bool changes = false;
  {
    Section section(&chunks_);
    changes = limits_.g3_admission != now.g3_admission;
  }
  if (changes) admissions = MakeAdmissions(now);
  Section section(&chunks_);
  KVKEEP_CHECK(now.tenants.size() == chunks_.pools.size());
  KVKEEP_RETURN_IF_ERROR(CheckCapacities(now));
  limits_.max_sessions = now.max_sessions;
  limits_.max_leases_per_session = now.max_leases_per_session;
  sessions_.leases.SetMostLeases(now.max_leases_per_session);
  limits_.max_leased_bytes = now.max_leased_bytes;
  limits_.max_reserved_bytes = now.max_reserved_bytes;
  limits_.dirty_budget_bytes = now.dirty_budget_bytes;
  limits_.scrub_bytes_per_second = now.scrub_bytes_per_second;
  scrubber_.SetRate(now.scrub_bytes_per_second);
  limits_.g3_write_bytes_per_second = now.g3_write_bytes_per_second;
  const uint64_t beyond = now.remote_write_bytes_per_second;
  if (std::exchange(limits_.remote_write_bytes_per_second, beyond) != beyond &&
      beyond_ != nullptr) {
    beyond_->changes.SetWriteRate(beyond);
  }
  limits_.g2_capacity_bytes = now.g2_capacity_bytes;
  limits_.g3_capacity_bytes = now.g3_capacity_bytes;
  if (std::exchange(limits_.g3_admission, now.g3_admission) != now.g3_admission) {
    if (admissions.empty()) admissions = MakeAdmissions(now);  // another call has changed limits
    writes_.SwapAdmissions(admissions);
  }
  sessions_.table.SetMaxSessions(limits_.max_sessions);
  SetTenantLimits(now);
  space_.SetCapacities(limits_.g3_capacity_bytes);
  space_.Share();
  trimmer_.NoteChanged();
  trimmer_.Trim(section);
  return absl::OkStatus();
}

void Limits::SetTenantLimits(const StoreOptions& now) {
  for (uint32_t t = 0; t < chunks_.pools.size(); ++t) {
    const TenantOptions& to = now.tenants[t];
    TenantOptions& own = limits_.tenants[t];
    KVKEEP_CHECK(own.name == to.name);
    sessions_.table.SetRates(TenantId(t), to.keys_per_second, to.bytes_per_second);
    own.keys_per_second = to.keys_per_second;
    own.bytes_per_second = to.bytes_per_second;
    own.max_leased_bytes = to.max_leased_bytes;
    own.g3_quota_bytes = to.g3_quota_bytes;
    chunks_.pools[t]->limits = PoolLimits(limits_, t);
    if (limits_.g3_write_bytes_per_second > 0) {
      writes_.admission(TenantId(t)).SetBytesPerSecond(WriteRate(limits_, t));
    }
  }
  const std::vector<Shares::Claim> claims = ClaimsOf(limits_, true);
  for (uint32_t t = 0; t < claims.size(); ++t) {
    tiers_.shares.SetQuota(TenantId(t), claims[t].quota);
  }
}

}  // namespace kvkeep::store_internal
