// GpuPath: the path between GPUs and the arena that a daemon's sessions share: the driver, and a
// device for every GPU with registered memory, or the reason why there is none.
//
// A device is opened at the first registration, as its context takes some hundred MiB of the GPU. A
// broken device is replaced at the next registration; its registrations stay refused. A
// registration is answered when the driver has opened or refused it, however long that takes. Until
// then the driver may open the memory at any time. So a driver that hangs keeps only registrations
// waiting; after a time they are counted.
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
    uint64_t refused_bytes = 0;  // of the arena, that the driver did not take
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
  // Keeps `holder`, the memory of a copy that cannot be ended, for ever: the copy may still read or
  // write it.
  virtual void KeepForEver(std::shared_ptr<const void> holder) = 0;
  // Call on one thread, as often as Store::Tick; it returns the same. While a GPU is in use it
  // finds no rest, as copies have deadlines.
  virtual bool Tick() = 0;
  virtual Stats stats() const = 0;
  // One line: "on, ..." or "off: why".
  virtual std::string describe() const = 0;
  // Closes everything. REQUIRES: no more copies or registrations. Returns false if the driver does
  // not answer; then this must not be destroyed, only the process ended.
  virtual bool Stop(std::chrono::nanoseconds timeout) = 0;
};

enum class GpuMode { kAuto, kOff, kRequired };

// With kAuto and no driver, returns a path that is off. FailedPrecondition: kRequired and no
// driver; says why. The arena's memory and `clock` must outlive it.
absl::StatusOr<std::unique_ptr<GpuPath>> OpenGpuPath(GpuMode mode, Arena* arena,
                                                     const Clock* clock);
// Returns a path that refuses everything, with this reason.
std::unique_ptr<GpuPath> MakeGpuPathOff(std::string why);

}  // namespace kvkeep
