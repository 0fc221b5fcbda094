// GrowingMemory: memory that grows to a known size and never moves.
//
// Address space for all of it is taken at construction. Pages come when they are first touched, all
// zeros, and huge where the kernel has them: random reads spend most of their time on finding
// pages.
//
//   GrowingMemory memory(most * sizeof(Entry), &toucher);
//   auto* const entries = reinterpret_cast<Entry*>(memory.data());
//   memory.Use(++used * sizeof(Entry));          // before each new entry
//
// With a MemoryToucher, pages are there before use comes to them; a use that
// comes earlier still works, it only waits for the kernel. Holds no objects. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiers/base/memory_toucher.h"

namespace kvkeep {

class GrowingMemory {
 public:
  static constexpr uint64_t kStepBytes = 2 << 20;  // a huge page, where pages have 4 KiB
  // Steps touched beyond the memory in use. Two: while one is being touched there is another one to
  // use.
  static constexpr uint64_t kStepsAhead = 2;

  // `toucher`, if there is one, must outlive it. Less than a step is never touched ahead.
  explicit GrowingMemory(uint64_t bytes, MemoryToucher* toucher = nullptr);
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Notes that the first `used` bytes are in use.
  void Use(uint64_t used) {
    if (used + kStepsAhead * kStepBytes > asked_ && asked_ < bytes_) TouchAhead(used);
  }
  // Returns how many bytes, from the front, the toucher was asked for; all of them without a
  // toucher.
  uint64_t asked() const { return asked_; }

 private:
  void TouchAhead(uint64_t used);

  const uint64_t bytes_;
  MemoryToucher* const toucher_;
  std::span<std::byte> mapping_;
  std::byte* data_ = nullptr;
  uint64_t asked_;
};

}  // namespace kvkeep
