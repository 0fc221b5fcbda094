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
      : bytes_(bytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes)), &std::free) {
    KVKEEP_CHECK(bytes > 0 && bytes % kBlockBytes == 0 && data_ != nullptr);
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
