// CopyPool: the copy threads, beside the memory of G2. If its segments are spread over NUMA nodes,
// the threads are divided among the same nodes, and each stays on CPUs of its node. Otherwise they
// run where the kernel puts them. If a node has too few CPUs for us, or the kernel refuses, its
// threads run anywhere, and work all the same.
//
// Thread-safe.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <string>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/host/numa.h"

namespace kvkeep {

class CopyPool {
 public:
  // `numa`, null: RealNuma. `choice`: as of the arena.
  CopyPool(int threads, Numa* numa, NumaChoice choice);

  ThreadPool* threads() { return &threads_; }
  // Waits until each task posted before has begun.
  void PassThrough();
  // Returns how many threads each node has: "copy threads on nodes (0: 4, 1: 4)". Empty if they are
  // not divided.
  std::string describe() const;

 private:
  void Begin(int node, int most_threads);

  Numa& numa_;
  const std::vector<int> nodes_;
  mutable Mutex mu_;
  std::map<int, int> divided_ ABSL_GUARDED_BY(mu_);  // threads that have begun, by node
  int free_ ABSL_GUARDED_BY(mu_) = 0;                // of these, threads that are not kept there
  absl::Status failure_ ABSL_GUARDED_BY(mu_);        // why: the first one's
  ThreadPool threads_;                               // last: they use the rest
};

}  // namespace kvkeep
