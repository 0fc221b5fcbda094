#include "tiers/base/growing_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "tiers/base/check.h"

// Linux 5.14; Debian 12's headers have it, older kernels refuse it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvkeep {

GrowingMemory::GrowingMemory(uint64_t bytes) : bytes_(bytes) {
  // One more, to begin at a huge page's boundary.
  const size_t length = (bytes + 2 * kStepBytes - 1) / kStepBytes * kStepBytes;
  void* const memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  KVKEEP_CHECK(memory != MAP_FAILED);
  mapping_ = {static_cast<std::byte*>(memory), length};
  const auto address = reinterpret_cast<uintptr_t>(memory);
  data_ = mapping_.data() + (kStepBytes - address % kStepBytes) % kStepBytes;
  if (bytes_ < kStepBytes) return;  // not worth a huge page
  // Refused: small pages then.
  static_cast<void>(madvise(data_, bytes_, MADV_HUGEPAGE));
  Touch(Due(0));
}

GrowingMemory::~GrowingMemory() { munmap(mapping_.data(), mapping_.size()); }

std::span<std::byte> GrowingMemory::NextStep(uint64_t used) {
  // Who jumps ahead leaves steps out: nobody may ever use them.
  told_ = std::max(told_, used / kStepBytes * kStepBytes);
  if (told_ >= bytes_) return {};
  const std::span<std::byte> step(data_ + told_, std::min(kStepBytes, bytes_ - told_));
  told_ += step.size();
  return step;
}

void GrowingMemory::Touch(std::span<std::byte> memory) {
  if (memory.empty()) return;
  // Refused: whoever needs a page waits for it.
  static_cast<void>(madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE));
}

}  // namespace kvkeep
