// Await: turns a call with a callback into one that waits. Internal to the library.
//
// A thread waits on a Completion<T>. A transport that reads its replies on the waiting threads
// (local/session.h) also wakes a thread through it, as a Waiting.
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
  bool lead ABSL_GUARDED_BY(mu) = false;  // this thread's turn to read replies has come

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

// While one lives, its thread starts a call that it is going to wait for: a transport may do that
// call's work on the thread itself, which saves two changes of threads.
class CallerWaits {
 public:
  CallerWaits() { waits_ = true; }
  ~CallerWaits() { waits_ = false; }
  CallerWaits(const CallerWaits&) = delete;
  CallerWaits& operator=(const CallerWaits&) = delete;

  // Returns whether the caller waits, once for each.
  static bool Take() { return std::exchange(waits_, false); }

 private:
  static inline thread_local bool waits_ = false;
};

// Runs `start(done)`, waits for the value given to `done`, and returns it. The calls' deadlines end
// the wait.
template <typename T, typename Start>
T Await(Start&& start) {
  Completion<T> completion;
  start([&](T value) { completion.Set(std::move(value)); });
  return completion.Take();
}

}  // namespace kvkeep::client
