#include "tiers/base/run_on_threads.h"

#include "tiers/base/executor.h"

namespace kvkeep {

void RunOnThreads(const std::string& name, int threads, absl::FunctionRef<void()> work) {
  if (threads <= 1) return work();
  ThreadPool others(name, threads - 1);
  for (int i = 1; i < threads; ++i) others.Post([work] { work(); });
  work();
}  // the pool runs what is posted, then joins

}  // namespace kvkeep
