// RangeAllocator: hands out ranges of a space of bytes, first fit, and joins ranges that come back.
//
// For staging memory, with few large ranges that each live for one put. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace kvkeep::client {

class RangeAllocator {
 public:
  // Offsets and sizes are rounded up to `alignment`, a power of two.
  RangeAllocator(uint64_t bytes, uint64_t alignment);

  // Returns the offset of a range of at least `bytes`; none if no gap is long enough now.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // REQUIRES: `offset` came from Allocate and was not freed since.
  void Free(uint64_t offset);

  uint64_t used_bytes() const { return used_; }
  uint64_t capacity() const { return capacity_; }
  bool empty() const { return taken_.empty(); }

 private:
  const uint64_t capacity_;
  const uint64_t alignment_;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> gaps_;   // offset -> bytes; no two touch
  std::map<uint64_t, uint64_t> taken_;  // offset -> bytes
};

}  // namespace kvkeep::client
