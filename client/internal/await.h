// Await: turns a call with a callback into one that waits. Internal to the library.
//
// Completion<T> is what a thread waits on. A transport that reads its replies on the waiting
// threads (local/session.h) wakes one through it, too: hence Waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "tiers/base/mutex.h"

namespace kvkeep::client {

// One thread that waits for one call.
struct Waiting {
  Mutex mu;
  CondVar changed;
  std::atomic<bool> done{false};          // set under mu, after the result
  bool lead ABSL_GUARDED_BY(mu) = false;  // it is this thread's turn to read replies

  void Wait() {
    MutexLock lock(&mu);
    while (!done) changed.Wait(&mu);
  }
};

template <typename T>
struct Completion : Waiting {
  void Set(T value) {
    MutexLock lock(&mu);
    result.emplace(std::move(value));
    done = true;
    changed.NotifyOne();  // under the lock: the waiter owns the condition variable
  }
  T Take() {
    Wait();
    return *std::move(result);
  }

  std::optional<T> result;  // constant once done
};

// Runs `start(done)` and waits for what is given to `done`. The calls' deadlines end the wait.
template <typename T, typename Start>
T Await(Start&& start) {
  Completion<T> completion;
  start([&](T value) { completion.Set(std::move(value)); });
  return completion.Take();
}

}  // namespace kvkeep::client
