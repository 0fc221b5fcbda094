// GrowingMemory: the memory of something that grows to a known size and never moves.
//
// Address space for all of it is taken at construction; pages come when they are first touched, all
// of them zeros; huge ones where the kernel has them: what is read at random spends most of its
// time on finding pages.
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
  static constexpr uint64_t kStepBytes = 2 << 20;  // a huge page
  // So many steps beyond what is in use are touched. Two: while one is being touched there is
  // another one to use.
  static constexpr uint64_t kStepsAhead = 2;

  // `toucher`, if there is one, must outlive it. Less than a step is never touched ahead.
  explicit GrowingMemory(uint64_t bytes, MemoryToucher* toucher = nullptr);
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Its first `used` bytes are in use from now on.
  void Use(uint64_t used) {
    if (used + kStepsAhead * kStepBytes > asked_ && asked_ < bytes_) TouchAhead(used);
  }
  // So many, from the front, the toucher was asked for; all of them where there is none.
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
