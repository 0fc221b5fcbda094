// RegisteredBuffers: finds the registered buffer, if any, that holds all of an I/O's memory.
//
// Knows addresses only; pinning is the engine's. Not thread-safe.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvkeep {

class RegisteredBuffers {
 public:
  // Checks whether `memory` may be registered next. InvalidArgument (size, alignment, overlap),
  // ResourceExhausted (table full).
  absl::Status CheckNext(std::span<const std::byte> memory) const;
  // REQUIRES: CheckNext(memory) is OK. Its slot in the kernel's table is the value that
  // next_slot() had before.
  void Add(std::span<const std::byte> memory);

  // The slot of the buffer that holds all of [data, data + bytes); none when no single one does.
  std::optional<uint32_t> Find(const std::byte* data, size_t bytes) const;
  uint32_t next_slot() const { return static_cast<uint32_t>(buffers_.size()); }

 private:
  struct Buffer {
    uintptr_t begin;
    uintptr_t end;
    uint32_t slot;
  };
  // Returns the first buffer that begins after `address`.
  std::vector<Buffer>::const_iterator After(uintptr_t address) const;

  std::vector<Buffer> buffers_;  // sorted by address
};

}  // namespace kvkeep
