// Mapping: the memory of one segment, mapped shared and read-write, unmapped when destroyed.
//
// Aligned so that huge pages can back it, out of core dumps and of forked children: KV bytes are
// user data, and a child must not keep the arena alive.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

class Mapping {
 public:
  // Maps the first `bytes` of `fd`. `page_bytes`: of the file system; above PageBytes() it is
  // hugetlbfs, which needs no hint. REQUIRES: bytes > 0, a multiple of page_bytes, which is a power
  // of two and at least PageBytes().
  static absl::StatusOr<Mapping> Map(int fd, uint64_t bytes, uint64_t page_bytes);

  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::span<std::byte> memory() const { return memory_; }

 private:
  explicit Mapping(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
};

}  // namespace kvkeep
