// MemoryToucher: a thread that makes pages present before anybody needs them.
//
// A page that nobody has used for long takes the kernel, or the host below it, 100 us to 10 ms. So
// no thread should be the first to touch a page while it holds a lock. GrowingMemory says here
// which pages come next. The thread starts with the first of them. Thread-safe. It must outlive the
// memory that it is told of.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class MemoryToucher {
 public:
  // Makes these pages present soon, keeping their contents; others may use the memory meanwhile.
  // Returns at once.
  void Touch(std::span<std::byte> memory) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all pages that Touch was told of are present.
  void Await() ABSL_LOCKS_EXCLUDED(mu_);

  // The same in the calling thread.
  static void TouchNow(std::span<std::byte> memory);

 private:
  Mutex mu_;
  std::unique_ptr<ThreadPool> thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
