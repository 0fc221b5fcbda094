#include "tiers/store/section.h"

#include <utility>

namespace kvkeep::store_internal {

Section::Section(Chunks* chunks, Kind kind) : chunks_(*chunks), kind_(kind) {
  Lock(/*after_yield=*/false);
}
Section::~Section() { Unlock(/*to_yield=*/false); }

void Section::Lock(bool after_yield) {
  const std::optional<MonotonicTime> asked_at = Take(after_yield);
  woke_ = kind_ == Kind::kServing && std::exchange(chunks_.at_rest_, false);
  locked_at_ = chunks_.deps_.clock->Now();
  waited_ns_ = asked_at.has_value() ? static_cast<uint64_t>((locked_at_ - *asked_at).count()) : 0;
  measured_ = kind_ != Kind::kNotMeasured && chunks_.deps_.work_clock != nullptr &&
              chunks_.counters.lock_acquisitions % chunks_.deps_.work_clock_every == 0;
  if (measured_) worked_at_ = chunks_.deps_.work_clock->Now();
  chunks_.hold.Begin();
}

// Takes the lock. Returns when it began to wait; none: it did not wait. A caller that finds the
// lock free reads no clock. Waiting for a turn does not count as a wait.
std::optional<MonotonicTime> Section::Take(bool after_yield) {
  FairMutex& mu = chunks_.mu_;
  if (kind_ == Kind::kJoin && !within_turn()) {
    mu.LockForTurn();
    return std::nullopt;
  }
  if (!(after_yield && mu.has_waiters()) && mu.TryLock()) return std::nullopt;
  const MonotonicTime asked_at = chunks_.deps_.clock->Now();
  mu.LockInLine();
  return asked_at;
}

void Section::Unlock(bool to_yield) {
  if (kind_ != Kind::kNotMeasured) {
    const auto held = static_cast<uint64_t>((chunks_.deps_.clock->Now() - locked_at_).count());
    // A hold cannot have worked for longer than it lasted. If that is no new maximum, the work
    // clock is not read, as it costs a system call.
    uint64_t worked = 0;
    if (measured_ && held > chunks_.counters.lock_worked_ns_max) {
      worked = static_cast<uint64_t>((chunks_.deps_.work_clock->Now() - worked_at_).count());
    }
    chunks_.NoteHold(held, worked, waited_ns_);
  }
  std::optional<Hold::Tasks> work = chunks_.hold.TakeTasks();
  if (kind_ == Kind::kJoin && !(to_yield && within_turn())) chunks_.mu_.EndTurn();
  chunks_.mu_.Unlock();
  if (woke_ && chunks_.deps_.wake) chunks_.deps_.wake();
  if (work.has_value()) std::move(*work).Run();
}

void Section::Yield() {
  ++yields_;
  Unlock(/*to_yield=*/true);
  if (chunks_.deps_.between_slices) chunks_.deps_.between_slices();
  Lock(/*after_yield=*/true);
}

bool Section::YieldIfSpent() {
  if (!chunks_.hold.Spent()) return false;
  Yield();
  return true;
}

}  // namespace kvkeep::store_internal
