// Device: asynchronous block I/O on one file or block device. The seam to disks.
//
// Submit hands over an operation and returns; the callback runs exactly once, later, on a thread of
// the engine (never inside Submit), with OK when every byte was moved. Until then the memory must
// stay valid. The device resumes short I/O. Offsets, sizes and addresses are multiples of
// kBlockBytes. Thread-safe. Operations have no order among each other.
//
// Errors: DataLoss (the drive said EIO, EILSEQ...), ResourceExhausted (ENOSPC), FailedPrecondition
// (read-only), Unavailable (device gone or engine stopping), Internal (our bug: EINVAL, EFAULT).
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>

#include "tiers/base/clock.h"
#include "tiers/base/strong_int.h"

namespace kvkeep {

using DeviceOffset = StrongInt<struct DeviceOffsetTag, uint64_t>;  // bytes from the start

struct IoOperation {
  enum class Kind : uint8_t { kRead, kWrite };
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  Kind kind = Kind::kRead;
  DeviceOffset offset;
  std::byte* data = nullptr;  // read into, or written from
  size_t bytes = 0;
  Done done;
  MonotonicTime submitted_at{0};  // the device's own: set if it measures times
};

class Device {
 public:
  virtual ~Device() = default;

  virtual void Submit(IoOperation operation) = 0;
  // Blocks until all writes that completed before are on stable storage (fdatasync).
  // Never call it on an engine's callback thread.
  virtual absl::Status Sync() = 0;
  virtual uint64_t size_bytes() const = 0;
  // Reads come from the device, never from the kernel's page cache.
  virtual bool direct() const { return true; }
};

}  // namespace kvkeep
