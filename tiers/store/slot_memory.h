// SlotMemory: the memory of an array that grows to a known size and never moves.
//
// Address space for all of it is taken at construction; pages come when they are first touched,
// huge ones where the kernel has them: what is read at random spends most of its time on finding
// pages. A huge page takes the kernel some 100 us to clear, so nobody should touch one first while
// he holds a lock: when the array comes near, Due() names the memory that is next, for Touch() by
// somebody who holds none. Who comes before that only waits for the kernel himself. Holds no
// objects. Not thread-safe, but that Touch may be given memory that others use meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep::store_internal {

class SlotMemory {
 public:
  static constexpr uint64_t kStepBytes = 2 << 20;  // a huge page

  explicit SlotMemory(uint64_t bytes);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  std::byte* data() const { return data_; }
  // The array has `used` bytes now. What should be touched, each step told once; else empty.
  std::span<std::byte> Due(uint64_t used) {
    if (used + kStepBytes / 2 < told_ || told_ >= bytes_ || bytes_ < kStepBytes) return {};
    return NextStep();
  }
  // Brings the pages there, whatever is in them.
  static void Touch(std::span<std::byte> memory);

 private:
  std::span<std::byte> NextStep();

  const uint64_t bytes_;
  std::span<std::byte> mapping_;
  std::byte* data_ = nullptr;
  uint64_t told_ = 0;
};

}  // namespace kvkeep::store_internal
