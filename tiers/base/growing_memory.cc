#include "tiers/base/growing_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {

GrowingMemory::GrowingMemory(uint64_t bytes, MemoryToucher* toucher)
    : bytes_(bytes),
      toucher_(toucher),
      asked_(toucher == nullptr || bytes < kStepBytes ? bytes : 0) {
  // One more step, to begin at a huge page's boundary.
  const size_t length = (bytes + 2 * kStepBytes - 1) / kStepBytes * kStepBytes;
  void* const memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  KVKEEP_CHECK(memory != MAP_FAILED);
  mapping_ = {static_cast<std::byte*>(memory), length};
  const auto address = reinterpret_cast<uintptr_t>(memory);
  data_ = mapping_.data() + (kStepBytes - address % kStepBytes) % kStepBytes;
  if (bytes_ < kStepBytes) return;  // not worth a huge page
  // If it is refused, pages are small. One that is larger than a step would take what nobody uses.
  if (TransparentHugePageBytes() <= kStepBytes) {
    static_cast<void>(madvise(data_, bytes_, MADV_HUGEPAGE));
  }
  Use(0);
}

GrowingMemory::~GrowingMemory() {
  if (toucher_ != nullptr) toucher_->Await();  // its addresses may be another's next
  munmap(mapping_.data(), mapping_.size());
}

void GrowingMemory::TouchAhead(uint64_t used) {
  KVKEEP_CHECK(used <= bytes_);
  while (asked_ < bytes_ && used + kStepsAhead * kStepBytes > asked_) {
    const uint64_t step = std::min(kStepBytes, bytes_ - asked_);
    toucher_->Touch({data_ + asked_, step});
    asked_ += step;
  }
}

}  // namespace kvkeep
