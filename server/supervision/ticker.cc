#include "server/supervision/ticker.h"

#include <pthread.h>

#include <utility>

namespace kvkeep {

Ticker::Ticker(Periods periods, absl::AnyInvocable<bool()> tick)
    : periods_(periods), tick_(std::move(tick)) {}

void Ticker::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Ticker::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Ticker::Wake() {
  MutexLock lock(&mu_);
  if (std::exchange(woken_, true)) return;
  changed_.NotifyAll();
}

void Ticker::WaitFor(std::chrono::nanoseconds time, bool or_woken) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!stopping_ && !(or_woken && woken_)) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    changed_.WaitFor(&mu_, left);
  }
}

bool Ticker::AwaitNext(bool at_rest) {
  MutexLock lock(&mu_);
  if (at_rest) WaitFor(periods_.rest, true);
  // A wake does not tick at once: ongoing work would then tick all the time.
  if (!at_rest || woken_) WaitFor(periods_.work, false);
  woken_ = false;
  return !stopping_;
}

void Ticker::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-tick");
  for (bool at_rest = false; AwaitNext(at_rest);) at_rest = tick_();
}

}  // namespace kvkeep
