#include "server/pin_budget.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr int kWakesAtOnce = 64;

// A wake runs what may poke again: once a thread, else who waits in a row would be woken one inside
// the other.
thread_local bool poking = false;

}  // namespace

uint64_t PinBudget::LimitOf(TenantId tenant) const {
  if (tenant.value() >= limits_.tenant_bytes.size()) return UINT64_MAX;
  constexpr uint64_t kLeast = 2;  // who holds nothing may always pin something
  return std::max(kLeast, limits_.tenant_bytes[tenant.value()]);
}

bool PinBudget::Room(TenantId tenant, uint64_t session_bytes) const {
  const uint64_t limit = LimitOf(tenant);
  const auto found = tenants_.find(tenant);
  const uint64_t held = found == tenants_.end() ? 0 : found->second.bytes;
  return held < limit && session_bytes < limit / 2;
}

uint64_t PinBudget::SessionBytes(const Holder& holder) const {
  const auto found = sessions_.find(holder.session);
  return found == sessions_.end() ? 0 : found->second.bytes;
}

bool PinBudget::HasRoom(const Holder& holder) {
  MutexLock lock(&mu_);
  return Room(holder.tenant, SessionBytes(holder));
}

bool PinBudget::HasRoomOr(const Holder& holder, Wake wake) {
  MutexLock lock(&mu_);
  if (Room(holder.tenant, SessionBytes(holder))) return true;
  Session& mine = sessions_[holder.session];
  mine.tenant = holder.tenant;
  if (mine.waiting.empty()) turns_.push_back(holder.session);
  mine.waiting.push_back(std::move(wake));
  ++tenants_[holder.tenant].waits;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

PinBudget::Hold PinBudget::Take(const Holder& holder, uint64_t bytes) {
  MutexLock lock(&mu_);
  Session& mine = sessions_[holder.session];
  mine.tenant = holder.tenant;
  mine.bytes += bytes;
  tenants_[holder.tenant].bytes += bytes;
  return Hold(this, holder, bytes);
}

PinBudget::Use PinBudget::UseOf(TenantId tenant) const {
  MutexLock lock(&mu_);
  Use use{.limit_bytes = LimitOf(tenant)};
  if (const auto found = tenants_.find(tenant); found != tenants_.end()) {
    use.bytes = found->second.bytes;
    use.waits = found->second.waits;
  }
  return use;
}

void PinBudget::GiveBack(const Holder& holder, uint64_t bytes) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(holder.session);
  KVKEEP_CHECK(found != sessions_.end() && found->second.bytes >= bytes);
  found->second.bytes -= bytes;
  tenants_[holder.tenant].bytes -= bytes;
  if (found->second.bytes == 0 && found->second.waiting.empty()) sessions_.erase(found);
}

PinBudget::Wake PinBudget::Next() {
  MutexLock lock(&mu_);
  for (size_t i = turns_.size(); i > 0; --i) {
    const SessionToken session = turns_.front();
    turns_.pop_front();
    const auto found = sessions_.find(session);
    KVKEEP_CHECK(found != sessions_.end() && !found->second.waiting.empty());
    if (!Room(found->second.tenant, found->second.bytes)) {
      turns_.push_back(session);
      continue;
    }
    Wake wake = std::move(found->second.waiting.front());
    found->second.waiting.pop_front();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    if (!found->second.waiting.empty()) {
      turns_.push_back(session);
    } else if (found->second.bytes == 0) {
      sessions_.erase(found);
    }
    return wake;
  }
  return {};
}

void PinBudget::Poke() {
  if (poking || waiting_.load(std::memory_order_relaxed) == 0) return;
  poking = true;
  for (int woken = 0; woken < kWakesAtOnce;) {
    Wake wake = Next();
    if (!wake) break;
    if (wake()) ++woken;
  }
  poking = false;
}

}  // namespace kvkeep
