// AlignedBytes: zeroed memory that block I/O may use directly. Move-only.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

class AlignedBytes {
 public:
  explicit AlignedBytes(size_t bytes)
      : bytes_(bytes), data_(nullptr, &std::free) {
    KVKEEP_CHECK(bytes > 0 && bytes % kBlockBytes == 0);
    void* memory = nullptr;  // not aligned_alloc, which tests make fail for the store only
    KVKEEP_CHECK(posix_memalign(&memory, kBlockBytes, bytes) == 0);
    data_.reset(static_cast<std::byte*>(memory));
    std::memset(data_.get(), 0, bytes);
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

}  // namespace kvkeep
