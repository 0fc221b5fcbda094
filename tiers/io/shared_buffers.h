// SharedBuffers: memory that the kernel pins once for the io_urings of all devices. Each ring takes
// over what is pinned here (IORING_REGISTER_CLONE_BUFFERS, Linux 6.13), which takes microseconds
// and no memory. A ring that registers memory itself makes the kernel keep its pages once more: up
// to 6 MiB a GiB.
//
// Owns a ring that does no I/O. Thread-safe.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tiers/base/mutex.h"

namespace kvkeep {

class SharedBuffers {
 public:
  // Tries it out. Unavailable or ResourceExhausted: this kernel or container does not have it.
  static absl::StatusOr<std::unique_ptr<SharedBuffers>> Create();
  virtual ~SharedBuffers() = default;

  // Pins this memory, under the conditions of IoEngine::RegisterBuffer. May take 100 ms a GiB.
  // REQUIRES: it stays mapped as long as this, and whoever took it over, lives.
  virtual absl::Status Pin(std::span<std::byte> memory) = 0;
  // Where it is pinned, for a ring to take over: a descriptor and a slot. None: it is not pinned.
  struct Place {
    int ring_fd = -1;
    uint32_t slot = 0;
  };
  virtual std::optional<Place> Find(std::span<const std::byte> memory) const = 0;
};

}  // namespace kvkeep
