#include "server/requests/pin_budget.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr int kWakesAtOnce = 64;

// A wake may run code that pokes again. A thread runs one Poke at a time; otherwise waiters would
// be woken one inside the other.
thread_local bool poking = false;

}  // namespace

uint64_t PinBudget::LimitOf(TenantId tenant) const {
  if (tenant.value() >= limits_.tenant_bytes.size()) return UINT64_MAX;
  constexpr uint64_t kLeast = 2;  // a session that holds nothing may always pin a chunk
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

bool PinBudget::HasRoomOr(const Holder& holder, Wake wake, Ticket* ticket) {
  MutexLock lock(&mu_);
  if (Room(holder.tenant, SessionBytes(holder))) return true;
  Session& mine = sessions_[holder.session];
  Tenant& tenant = tenants_[holder.tenant];
  mine.tenant = holder.tenant;
  if (mine.waiting.empty()) {
    mine.turn = next_turn_++;
    tenant.turns[mine.turn] = holder.session;
  }
  *ticket = next_ticket_++;
  mine.waiting[*ticket] = std::move(wake);
  ++tenant.waits;
  ++tenant.waiting;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void PinBudget::Leave(const Holder& holder, Ticket ticket) {
  Wake gone;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto session = sessions_.find(holder.session);
  if (session == sessions_.end() || !session->second.waiting.contains(ticket)) return;
  gone = TakeOut(session, ticket);
}

PinBudget::Wake PinBudget::TakeOut(Sessions::iterator session, Ticket ticket) {
  Session& mine = session->second;
  Tenant& tenant = tenants_[mine.tenant];
  const auto one = mine.waiting.find(ticket);
  KVKEEP_CHECK(one != mine.waiting.end());
  Wake wake = std::move(one->second);
  mine.waiting.erase(one);
  --tenant.waiting;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (mine.waiting.empty()) {
    tenant.turns.erase(mine.turn);
    if (mine.bytes == 0) sessions_.erase(session);
  }
  return wake;
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
    use.waiting = found->second.waiting;
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

PinBudget::Sessions::iterator PinBudget::InTurn() {
  auto next = sessions_.end();
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.bytes >= LimitOf(id)) continue;  // no session of this tenant has room
    for (const auto& [turn, token] : tenant.turns) {
      const auto session = sessions_.find(token);
      KVKEEP_CHECK(session != sessions_.end() && !session->second.waiting.empty());
      if (!Room(id, session->second.bytes)) continue;  // at most one, as it holds half of the limit
      if (next == sessions_.end() || turn < next->second.turn) next = session;
      break;
    }
  }
  return next;
}

PinBudget::Wake PinBudget::Next() {
  MutexLock lock(&mu_);
  const auto session = InTurn();
  if (session == sessions_.end()) return {};
  Session& mine = session->second;
  if (mine.waiting.size() > 1) {  // its other waiters' turn comes after all sessions waiting now
    auto& turns = tenants_[mine.tenant].turns;
    turns.erase(std::exchange(mine.turn, next_turn_++));
    turns[mine.turn] = session->first;
  }
  return TakeOut(session, mine.waiting.begin()->first);
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
