// Ticker: calls the periodic work of the daemon on a thread of its own, until it is stopped:
// often while there is something to do, rarely at rest, so that an idle node may sleep.
//
// `tick` returns whether it found everything at rest. Wake, from any thread, ends a rest: the next
// tick comes within the period of work. A Wake during a tick ends the next rest before it begins.
// Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>

#include <chrono>
#include <thread>

#include "tiers/base/mutex.h"

namespace kvkeep {

class Ticker {
 public:
  struct Periods {
    std::chrono::nanoseconds work, rest;
  };

  Ticker(Periods periods, absl::AnyInvocable<bool()> tick);
  ~Ticker() { Stop(); }

  void Start();  // once
  void Wake();
  // Ends ticking; a tick that runs is over when this returns. A later Wake is harmless.
  void Stop();

 private:
  void Run();
  // Waits until the next tick is due. Returns false if the ticker is stopped.
  bool AwaitNext(bool at_rest);
  void WaitFor(std::chrono::nanoseconds time, bool or_woken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Periods periods_;
  absl::AnyInvocable<bool()> tick_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;  // since the last tick began
  std::thread thread_;
};

}  // namespace kvkeep
