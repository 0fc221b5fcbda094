// PutLine: whose puts wait for space that other sessions' puts hold, in the order in which they
// came. A line for every tenant, as each has a limit of reserved bytes of its own. Who comes while
// others wait goes behind them: many small puts do not keep a large one waiting for ever.
//
// It knows nothing of space or time: who waits looks at both. One thread, that of the loop.
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
    // Puts what there is space for. True: it still waits.
    virtual bool TryAgain() = 0;
  };

  // Nobody else is before it.
  bool MayGo(uint32_t tenant, const Waiter* waiter) const;
  // It stays where it is when it waits already.
  void Join(uint32_t tenant, Waiter* waiter);
  // Nothing happens when it does not wait.
  void Leave(uint32_t tenant, const Waiter* waiter);
  // Some space came free: who waits tries again, up to the first that goes on waiting.
  void Advance(uint32_t tenant);

 private:
  absl::flat_hash_map<uint32_t, std::deque<Waiter*>> lines_;  // none is empty
};

}  // namespace kvkeep
