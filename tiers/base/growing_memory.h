// GrowingMemory: the memory of something that grows to a known size and never moves.
//
// Address space for all of it is taken at construction; pages come when they are first touched, all
// of them zeros; huge ones where the kernel has them: what is read at random spends most of its
// time on finding pages. A page that nobody has used for long takes the kernel, or the host below
// it, from 100 us to 10 ms, so no thread should touch a page first while it holds a lock. When use
// comes near, Due() names the memory that is next, for Touch() by a thread that holds no lock. A
// use that comes earlier still works; it only waits for the kernel. Holds no objects. Not
// thread-safe, except that Touch may be given memory that others use meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

class GrowingMemory {
 public:
  static constexpr uint64_t kStepBytes = 2 << 20;  // a huge page

  explicit GrowingMemory(uint64_t bytes);
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Its first `used` bytes are in use now. What should be touched, so that at least kStepsAhead
  // beyond them are there; each step is told once; else empty. Below one step nothing is ever due.
  // Two: while one is being touched there is another one to use.
  static constexpr uint64_t kStepsAhead = 2;
  std::span<std::byte> Due(uint64_t used) {
    if (used + kStepsAhead * kStepBytes <= told_ || told_ >= bytes_ || bytes_ < kStepBytes) {
      return {};
    }
    return NextStep(used);
  }
  // Brings the pages there, whatever is in them.
  static void Touch(std::span<std::byte> memory);

 private:
  std::span<std::byte> NextStep(uint64_t used);

  const uint64_t bytes_;
  std::span<std::byte> mapping_;
  std::byte* data_ = nullptr;
  uint64_t told_ = 0;
};

}  // namespace kvkeep
