#include "server/supervision/loop_watch.h"

#include <algorithm>
#include <utility>

namespace kvkeep {

void LoopWatch::Watch(std::string name, Executor* loop, Waits waits) {
  MutexLock lock(&mu_);
  loops_.push_back({std::move(name), loop, waits, std::make_shared<Probe>()});
}

void LoopWatch::ForgetAll() {
  MutexLock lock(&mu_);
  loops_.clear();
}

void LoopWatch::Poll() {
  MutexLock lock(&mu_);  // keeps ForgetAll from returning meanwhile; Post does not wait
  for (const Loop& loop : loops_) {
    {
      MutexLock probe_lock(&loop.probe->mu);
      if (loop.probe->under_way) continue;
      loop.probe->under_way = true;
      loop.probe->sent = clock_->Now();
    }
    // The clock lives as long as the process, or the test that runs the probe.
    loop.executor->Post([probe = loop.probe, clock = clock_] {
      MutexLock lock(&probe->mu);
      probe->under_way = false;
      probe->took = clock->Now() - probe->sent;
    });
  }
}

std::vector<LoopWatch::Lag> LoopWatch::lags() const {
  std::vector<Lag> lags;
  const MonotonicTime now = clock_->Now();
  MutexLock lock(&mu_);
  for (const Loop& loop : loops_) {
    MutexLock probe_lock(&loop.probe->mu);
    const MonotonicTime waiting = loop.probe->under_way ? now - loop.probe->sent : MonotonicTime(0);
    lags.push_back({loop.name, loop.waits, std::max(waiting, loop.probe->took)});
  }
  return lags;
}

}  // namespace kvkeep
