// GpuDevice: the seam to one GPU. It opens the memory that workers register and copies between that
// and the arena. CudaDevice is the real one; tests have their own.
//
// Guarantees:
//   - Nothing here waits for a GPU: every call returns at once, and every answer is a callback on
//     the executor that the device was made with, exactly once unless it says otherwise.
//   - A copy ends either done, or cancelled and fenced. A late one is reported as DeadlineExceeded
//     after it has ended for good. Only if the driver itself hangs, no fence is possible: CopyEnd
//     says so, and the memory of both sides stays as it is until the process ends.
//   - A handle is opened once per registration, and closed when the copies that use it have ended.
//
// Thread-safe. No CUDA in this header.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "server/gpu/copy_plan.h"
#include "server/sockets/descriptor_closer.h"
#include "tiers/base/clock.h"
#include "tiers/base/strong_int.h"

namespace kvkeep {

// The owner of a registration: one session. Two sessions never share a mapping.
using GpuOwner = StrongInt<struct GpuOwnerTag, uint64_t>;
// The tenant of a session, which is charged with contexts that its memory breaks (gpu_strikes.h).
using GpuTenant = StrongInt<struct GpuTenantTag, uint32_t>;

// The arena's memory, borrowed. All segments but the last have segment_bytes.
struct GpuArena {
  std::vector<std::span<std::byte>> segments;
  uint64_t segment_bytes = 0;
  // Returns whether a segment has all of its memory, so that it may be registered with the driver.
  // Null: all have.
  std::function<bool(size_t)> is_whole = nullptr;

  absl::Status Validate() const;
  uint64_t bytes() const;
  // REQUIRES: inside the arena.
  std::byte* At(uint64_t offset) const;
};

// The memory that a worker registers: a range of one of its allocations. The handle is always of
// the whole allocation.
struct GpuMemory {
  enum class Kind {
    kIpcHandle,   // cuIpcGetMemHandle of cuMemAlloc's memory
    kDescriptor,  // cuMemExportToShareableHandle of cuMemCreate's
  };
  static constexpr size_t kHandleBytes = 64;

  Kind kind = Kind::kIpcHandle;
  std::array<std::byte, kHandleBytes> handle{};  // kIpcHandle
  ExpendableFd descriptor;                       // kDescriptor
  uint64_t allocation_bytes = 0;                 // as the worker says; for kDescriptor exactly
  uint64_t offset = 0;                           // of the range in the allocation
  uint64_t bytes = 0;                            // of the range
  GpuOwner owner;
  GpuTenant tenant;
  int process = 0;  // the worker's number, which the kernel knows by its socket; 0: not known

  // InvalidArgument names the field. Says nothing of what the handle really is.
  absl::Status Validate() const;
};

enum class CopyDirection { kToArena, kToGpu };

struct GpuCopy {
  CopyDirection direction = CopyDirection::kToArena;
  std::vector<GpuRun> runs;
  MonotonicTime deadline{0};
};

struct CopyEnd {
  // OK: every byte is there. DeadlineExceeded: too late. Aborted: a registration or the device is
  // gone. Unavailable: the device is broken. Otherwise the error in the runs.
  absl::Status status;
  // True if the copy no longer reads or writes the memory of either side.
  bool fenced = true;
};

class GpuDevice {
 public:
  struct Stats {
    uint64_t registrations = 0;  // open now
    uint64_t opened = 0;
    uint64_t closed = 0;
    uint64_t refused_registrations = 0;
    uint64_t queued_copies = 0;  // now, not given to the driver yet
    uint64_t issued_copies = 0;  // now
    uint64_t done_copies = 0;
    uint64_t failed_copies = 0;     // refused or cancelled; late and abandoned ones too
    uint64_t late_copies = 0;       // ended after their deadline
    uint64_t abandoned_copies = 0;  // not fenced
    uint64_t bytes_to_arena = 0;    // of done copies
    uint64_t bytes_to_gpu = 0;
    uint64_t pieces = 0;   // that the driver was asked to copy
    uint64_t submits = 0;  // calls that it took
    uint64_t polls = 0;    // looks at copies under way
    std::string broken;    // why the device is given up on; empty: it works
  };
  using RegisterDone = absl::AnyInvocable<void(absl::StatusOr<GpuRegistrationId>) &&>;
  using UnregisterDone = absl::AnyInvocable<void() &&>;
  using CopyDone = absl::AnyInvocable<void(CopyEnd) &&>;

  virtual ~GpuDevice() = default;

  // InvalidArgument, Unimplemented, FailedPrecondition: this memory cannot be opened, and why.
  // ResourceExhausted: too many registrations. Unavailable: the device is broken.
  virtual void Register(GpuMemory memory, RegisterDone done) = 0;
  // Lets no further copy begin in the registration; copies not given to the driver yet end Aborted.
  // `done` runs when the handle is closed: never, if a copy in it was abandoned.
  virtual void Unregister(GpuRegistrationId id, UnregisterDone done) = 0;
  virtual void Copy(GpuCopy copy, CopyDone done) = 0;

  // Ends copies that are past their deadline, also while the driver hangs. Call now and then.
  virtual void Tick() = 0;
  virtual Stats stats() const = 0;
};

}  // namespace kvkeep
