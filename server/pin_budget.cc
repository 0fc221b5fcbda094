#include "server/pin_budget.h"

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr int kWakesAtOnce = 64;

// A wake runs what may poke again: once a thread, else who waits in a row would be woken one inside
// the other.
thread_local bool poking = false;

}  // namespace

bool PinBudget::HasRoom(const SessionToken& session) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session);
  return Room(found == sessions_.end() ? 0 : found->second.bytes);
}

bool PinBudget::HasRoomOr(const SessionToken& session, Wake wake) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session);
  if (Room(found == sessions_.end() ? 0 : found->second.bytes)) return true;
  Session& mine = sessions_[session];
  if (mine.waiting.empty()) turns_.push_back(session);
  mine.waiting.push_back(std::move(wake));
  waiting_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

PinBudget::Hold PinBudget::Take(const SessionToken& session, uint64_t bytes) {
  MutexLock lock(&mu_);
  sessions_[session].bytes += bytes;
  bytes_ += bytes;
  return Hold(this, session, bytes);
}

void PinBudget::GiveBack(const SessionToken& session, uint64_t bytes) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session);
  KVKEEP_CHECK(found != sessions_.end() && found->second.bytes >= bytes);
  found->second.bytes -= bytes;
  bytes_ -= bytes;
  if (found->second.bytes == 0 && found->second.waiting.empty()) sessions_.erase(found);
}

PinBudget::Wake PinBudget::Next() {
  MutexLock lock(&mu_);
  for (size_t i = turns_.size(); i > 0; --i) {
    const SessionToken session = turns_.front();
    turns_.pop_front();
    const auto found = sessions_.find(session);
    KVKEEP_CHECK(found != sessions_.end() && !found->second.waiting.empty());
    if (!Room(found->second.bytes)) {
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
