// GpuWorker: the seam to the driver in a client of the benchmark: memory on the GPU, memory of the
// host that the driver knows, and copies between the two, as an engine's worker makes them.
//
// The driver is opened at run time; without one, or in a build without CUDA's headers, Open says
// why. One thread, on which its context is current. Its memory stays until the process ends.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace kvkeep::bench {

enum class GpuCopyWay { kToGpu, kToHost };

class GpuWorker {
 public:
  struct Piece {
    uint64_t device = 0;        // address, as the driver has it
    std::byte* host = nullptr;  // only read when it goes to the GPU
    uint64_t bytes = 0;
  };

  // The first device that the driver shows. NOT_FOUND, FAILED_PRECONDITION: no driver, no device;
  // UNIMPLEMENTED: built without it.
  static absl::StatusOr<std::unique_ptr<GpuWorker>> Open();
  virtual ~GpuWorker() = default;

  virtual const std::string& device() const = 0;     // its name, and the driver's version
  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;  // of its memory, whoever has the rest
  // The address of so many bytes, in an allocation of their own.
  virtual absl::StatusOr<uint64_t> Allocate(uint64_t bytes) = 0;
  virtual absl::Status PinHost(std::span<std::byte> memory) = 0;
  // Returns when all of them are done. Each piece is one copy.
  virtual absl::Status Copy(GpuCopyWay way, std::span<const Piece> pieces) = 0;
};

}  // namespace kvkeep::bench
