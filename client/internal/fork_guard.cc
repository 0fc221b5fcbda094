#include "client/internal/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {
namespace {

struct Registry {
  Mutex mu;
  std::vector<int> descriptors ABSL_GUARDED_BY(mu);
};

std::atomic<int> fork_generation{0};

void BeforeFork();
void InParent();
void InChildProcess();

Registry& TheRegistry() {
  static Registry* const registry = [] {
    KVKEEP_CHECK(pthread_atfork(BeforeFork, InParent, InChildProcess) == 0);
    return new Registry;  // never destroyed: a fork may come as late as the end of the process
  }();
  return *registry;
}

// The lock is held from before the fork until after it, in both processes.
void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheRegistry().mu.Lock(); }
void InParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheRegistry().mu.Unlock(); }
void InChildProcess() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  fork_generation.fetch_add(1);
  for (const int fd : TheRegistry().descriptors) close(fd);
  TheRegistry().descriptors.clear();
  TheRegistry().mu.Unlock();
}

}  // namespace

int ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

GuardedFd::GuardedFd(UniqueFd fd) : fd_(std::move(fd)) {
  if (!fd_.valid()) return;
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.descriptors.push_back(fd_.get());
}

void GuardedFd::Reset() {
  if (!fd_.valid()) return;
  if (mark_.InChild()) {
    (void)fd_.Release();
    return;
  }
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  std::erase(registry.descriptors, fd_.get());
  fd_.Reset();
}

}  // namespace kvkeep::client
