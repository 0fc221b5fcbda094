// GpuWorker: the interface to the driver in a client of the benchmark: GPU memory, host memory
// registered with the driver, and copies between the two, as an engine's worker makes them.
//
// The driver is opened at run time. Without one, or in a build without CUDA's headers, Open fails
// with the reason. One thread, on which its context is current. Its memory stays until the process
// ends.
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
    uint64_t device = 0;        // the driver's address
    std::byte* host = nullptr;  // only read when it goes to the GPU
    uint64_t bytes = 0;
  };

  // Opens the driver's first device. NOT_FOUND, FAILED_PRECONDITION: no driver, no device;
  // UNIMPLEMENTED: the build has no GPU support.
  static absl::StatusOr<std::unique_ptr<GpuWorker>> Open();
  virtual ~GpuWorker() = default;

  virtual const std::string& device() const = 0;     // its name, and the driver's version
  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;  // of the device's memory
  // Returns the address of a new allocation of `bytes` bytes.
  virtual absl::StatusOr<uint64_t> Allocate(uint64_t bytes) = 0;
  virtual absl::Status PinHost(std::span<std::byte> memory) = 0;
  // Returns when all copies are done. Each piece is one copy.
  virtual absl::Status Copy(GpuCopyWay way, std::span<const Piece> pieces) = 0;
};

}  // namespace kvkeep::bench
