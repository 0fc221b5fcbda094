// PutLine: sessions whose puts wait for space that other sessions' puts hold, in the order in which
// they came. There is a line for every tenant, as each has a limit of reserved bytes of its own. A
// put that comes while others wait goes behind them, so that many small puts do not keep a large
// one waiting for ever.
//
// It knows nothing of space or time: the waiters look at both. One thread, the loop's.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>

namespace kvkeep {

class PutLine {
 public:
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Puts as much as there is space for. Returns true if it still waits.
    virtual bool TryAgain() = 0;
  };

  // Returns whether no other waiter is before this one.
  bool MayGo(uint32_t tenant, const Waiter* waiter) const;
  // A waiter that is in the line already keeps its place.
  void Join(uint32_t tenant, Waiter* waiter);
  // No-op for a waiter that is not in the line.
  void Leave(uint32_t tenant, const Waiter* waiter);
  // Call when space came free: waiters try again in order, up to the first that goes on waiting.
  void Advance(uint32_t tenant);

 private:
  absl::flat_hash_map<uint32_t, std::deque<Waiter*>> lines_;  // none is empty
};

}  // namespace kvkeep
