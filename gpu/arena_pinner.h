// ArenaPinner: registers an arena's mapping with the driver, segment by segment, in the background.
// The daemon's own, or a worker's, which is read-only.
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

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/driver.h"
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

  struct Memory {
    std::vector<std::span<std::byte>> segments;
    bool read_only = false;  // mapped so: not every device can register that
    // Whether a segment has all of its memory, which pinning would take; null: all have. It waits
    // at the first one that has not.
    std::function<bool(size_t)> is_whole = nullptr;
  };

  // Starts at once. `device`: whose primary context is used. `driver`, the memory and `executor`
  // must outlive this.
  ArenaPinner(const GpuDriver* driver, CUdevice device, Memory memory, Executor* executor);
  ~ArenaPinner();
  ArenaPinner(const ArenaPinner&) = delete;
  ArenaPinner& operator=(const ArenaPinner&) = delete;

  // A segment that it waits at may be whole by now.
  void Continue();
  Stats stats() const;
  // Whether all of `run` lies in a segment that is registered now.
  bool Covers(std::span<const std::byte> run) const;
  // Until every segment was tried; false: `timeout` passed first.
  bool AwaitFinished(std::chrono::nanoseconds timeout) const;

 private:
  struct State;
  // Shared with the queued task, which may outlive this object.
  const std::shared_ptr<State> state_;
};

}  // namespace kvkeep
