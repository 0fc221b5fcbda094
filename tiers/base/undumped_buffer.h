// UndumpedBuffer: some memory that core files leave out: for payload bytes on their way.
// Not thread-safe; made once a thread and used again.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

class UndumpedBuffer {
 public:
  // `bytes`: of whole blocks.
  explicit UndumpedBuffer(size_t bytes) : bytes_(bytes) {
    KVKEEP_CHECK(bytes > 0 && bytes % kBlockBytes == 0);
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    if (madvise(at, bytes, MADV_DONTDUMP) != 0) {
      munmap(at, bytes);
      return;
    }
    at_ = static_cast<std::byte*>(at);
  }
  ~UndumpedBuffer() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }
  UndumpedBuffer(const UndumpedBuffer&) = delete;
  UndumpedBuffer& operator=(const UndumpedBuffer&) = delete;

  // Returns the memory; empty if the kernel gave none.
  std::span<std::byte> memory() const { return {at_, at_ == nullptr ? 0 : bytes_}; }

 private:
  const size_t bytes_;
  std::byte* at_ = nullptr;
};

}  // namespace kvkeep
