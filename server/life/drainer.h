// Drainer: brings the store to rest. Puts and new sessions end, dirty chunks are written back, and
// every device is synced. Callers are told how many chunks were left when the time was over. A
// drain may also wait for G4's pending writes and removals, which are finite, as puts have ended,
// and have the node's fleet take its hottest chunks.
//
// Poll does the waiting: the maintenance thread calls it. Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/life/hand_over.h"
#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class Drainer {
 public:
  struct Left {
    uint64_t dirty_chunks = 0;
    std::optional<uint64_t> g4_chunks;    // to be written there; none: there is no G4
    std::optional<uint64_t> g4_removals;  // to be removed there; likewise
    std::optional<HandedOver> to_peers;   // none: nothing was to go to them
  };
  // What a drain does beside writing back.
  struct Wants {
    bool g4 = false;        // waits for G4's pending writes, which are made from now on
    bool to_peers = false;  // hands chunks to other nodes; only with peers
  };
  using Done = absl::AnyInvocable<void(Left) &&>;

  // `on_begin` runs once, when the first drain begins. `peers`: null without a fleet. All must
  // outlive the drainer.
  Drainer(Store* store, HandOver* peers, const Clock* clock, absl::AnyInvocable<void()> on_begin);

  bool has_peers() const { return peers_ != nullptr; }
  // Begins to drain, if no drain has begun. `done` runs on a thread of Poll or of the store, once.
  void Start(std::chrono::nanoseconds timeout, const Wants& wants, Done done);
  // Answers the drains whose wait is over. Cheap when there is none.
  void Poll();
  // Answers all drains now: the daemon stops.
  void EndWaits();

 private:
  struct Waiter {
    MonotonicTime deadline;
    Wants wants;
    Done done;
  };

  Store* const store_;
  HandOver* const peers_;
  const Clock* const clock_;
  Mutex mu_;
  absl::AnyInvocable<void()> on_begin_ ABSL_GUARDED_BY(mu_);  // null once drains have begun
  bool wants_g4_ ABSL_GUARDED_BY(mu_) = false;  // somebody does
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
