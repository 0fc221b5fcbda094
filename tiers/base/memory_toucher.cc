#include "tiers/base/memory_toucher.h"

#include <sys/mman.h>

// Linux 5.14; Debian 12's headers have it, older kernels refuse it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvkeep {

void MemoryToucher::TouchNow(std::span<std::byte> memory) {
  if (memory.empty()) return;
  // If it is refused, the user of a page waits for it.
  static_cast<void>(madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE));
}

void MemoryToucher::Touch(std::span<std::byte> memory) {
  MutexLock lock(&mu_);
  if (thread_ == nullptr) thread_ = std::make_unique<ThreadPool>("kvkeep-touch", 1);
  thread_->Post([memory] { TouchNow(memory); });
}

void MemoryToucher::Await() {
  ThreadPool* thread = nullptr;
  {
    MutexLock lock(&mu_);
    thread = thread_.get();
  }
  if (thread != nullptr) AwaitTurn(*thread);
}

}  // namespace kvkeep
