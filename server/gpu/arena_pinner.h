// ArenaPinner: registers the arena with the driver, segment by segment, in the background.
//
// Page-locking goes at one to two GB/s, so a large arena takes minutes: copies are served
// meanwhile, slower where a segment is not registered yet. Registered once for all contexts of the
// process. A segment that the driver refuses stays unregistered, counted, and the rest is tried all
// the same.
//
// Works on one executor thread that may block; it holds no lock over a driver call. Destroying it
// stops it after the segment that it is at, and unregisters all. Thread-safe.
#pragma once

#include <absl/status/status.h>
#include <cuda.h>

#include <cstdint>
#include <memory>

#include "server/gpu/driver.h"
#include "server/gpu/gpu_device.h"
#include "tiers/base/executor.h"

namespace kvkeep {

class ArenaPinner {
 public:
  struct Stats {
    uint64_t pinned_bytes = 0;
    uint64_t refused_bytes = 0;
    absl::Status first_refusal;  // OK: none
    bool finished = false;       // every segment was tried
  };

  // Starts at once. `device`: whose primary context is used. `driver`, the arena's memory and
  // `executor` must outlive this.
  ArenaPinner(const GpuDriver* driver, CUdevice device, GpuArena arena, Executor* executor);
  ~ArenaPinner();
  ArenaPinner(const ArenaPinner&) = delete;
  ArenaPinner& operator=(const ArenaPinner&) = delete;

  Stats stats() const;

 private:
  struct State;
  // Shared with the queued task, which may outlive this object.
  const std::shared_ptr<State> state_;
};

}  // namespace kvkeep
