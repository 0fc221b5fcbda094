// GpuPath: what a daemon's sessions share of the path between GPUs and the arena: the driver, a
// device for every GPU that somebody registers memory of, and why there is none.
//
// A device is opened at the first registration, as its context takes some hundred MiB of the GPU.
// One that broke is replaced at the next registration; what was registered with it stays refused.
// A registration is answered when the driver has opened it or refused, however long that takes:
// before, it may open the memory at any time. So a driver that hangs keeps who registers waiting,
// and nobody else; after a time it is counted.
//
// Thread-safe. No CUDA in this header.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "server/gpu/gpu_device.h"
#include "tiers/base/clock.h"
#include "tiers/host/arena.h"

namespace kvkeep {

using GpuUuid = std::array<std::byte, 16>;

class GpuPath {
 public:
  // A registration. `device` lives as long as the path does.
  struct Registered {
    GpuDevice* device = nullptr;
    GpuRegistrationId id;
  };
  struct Stats {
    bool on = false;
    uint64_t devices = 0;        // opened and good
    uint64_t broken = 0;         // of those ever opened, given up on
    GpuDevice::Stats sum;        // of all that were ever opened; `broken` is of the last one
    uint64_t pinned_bytes = 0;   // of the arena, registered with the driver
    uint64_t refused_bytes = 0;  // of it, that the driver did not take
    uint64_t unanswered = 0;     // registrations that the driver did not answer to in time
    uint64_t kept = 0;           // requests kept for ever, see KeepForEver
    uint64_t tenants_off = 0;    // that are refused, as they broke contexts (gpu_strikes.h)
  };
  using RegisterDone = absl::AnyInvocable<void(absl::StatusOr<Registered>) &&>;

  virtual ~GpuPath() = default;

  // `done` runs once, on any thread, perhaps before this returns; it is destroyed unrun where the
  // path stops before the driver answers. Errors as GpuDevice::Register's;
  // NotFound: no such GPU; FailedPrecondition: the path is off, and why.
  virtual void Register(const GpuUuid& gpu, GpuMemory memory, RegisterDone done) = 0;
  // What a copy that cannot be ended still reads or writes. Never destroyed.
  virtual void KeepForEver(std::shared_ptr<const void> holder) = 0;
  // On one thread; how often, and what it returns: as Store::Tick. No rest while a GPU is in use,
  // as copies have deadlines.
  virtual bool Tick() = 0;
  virtual Stats stats() const = 0;
  // One line: "on, ..." or "off: why".
  virtual std::string describe() const = 0;
  // Closes everything. REQUIRES: nobody copies or registers any more. False: the driver does not
  // answer; then this must not be destroyed, only the process ended.
  virtual bool Stop(std::chrono::nanoseconds timeout) = 0;
};

enum class GpuMode { kAuto, kOff, kRequired };

// With kAuto and no driver it is a path that is off. FailedPrecondition: kRequired, and why there
// is none. The arena's memory and `clock` must outlive it.
absl::StatusOr<std::unique_ptr<GpuPath>> OpenGpuPath(GpuMode mode, Arena* arena,
                                                     const Clock* clock);
// That refuses everything, with this reason.
std::unique_ptr<GpuPath> MakeGpuPathOff(std::string why);

}  // namespace kvkeep
