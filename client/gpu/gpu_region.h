// GpuRegion: GPU memory of this worker that is registered with the daemon. Puts and gets name runs
// of it.
//
// The registration is the client's, not the session's: after the daemon came back, the first call
// that names it registers it again, under a new generation, so that it is not taken for an earlier
// one. If the daemon refuses the registration, every call and usable() say so.
//
// The memory must stay allocated until Unregister is OK. Leave bytes that a call names alone until
// the call has its answer. A call that ended without one (DEADLINE_EXCEEDED, UNAVAILABLE) leaves
// them in use, as in_use() says, at the latest until the daemon's process has ended.
//
// Move-only; destroying it unregisters in the background. It may outlive its client. Does nothing
// in a child of fork(). Thread-safe, but for moves and destruction.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>

#include "client/gpu/gpu_run.h"
#include "client/values/types.h"

namespace kvkeep::client {

struct LocalGpuRegion;

class [[nodiscard]] GpuRegion {
 public:
  GpuRegion() = default;
  ~GpuRegion();
  GpuRegion(GpuRegion&& other) noexcept = default;
  GpuRegion& operator=(GpuRegion&& other) noexcept;

  GpuRegionId id() const;  // zero: default constructed or moved from
  uint64_t bytes() const;
  // Returns whether the daemon may still read or write it, because a put or get has not been
  // answered.
  bool in_use() const;
  // Returns OK if, as far as is known, the next call finds it registered, or registers it.
  // Otherwise says why the present daemon refuses it: use the local path.
  absl::Status usable() const;
  // Returns when the daemon has closed it: only then may the memory be freed. FAILED_PRECONDITION:
  // in use. DEADLINE_EXCEEDED: the daemon has not answered yet, to this or to a registration that
  // was under way. UNAVAILABLE: the session is over, and the daemon's process may still have it
  // open; call again until this is OK. The region has no other use from now on.
  absl::Status Unregister(Deadline timeout);

  // For the transport.
  explicit GpuRegion(std::shared_ptr<LocalGpuRegion> region);

 private:
  void Leave();

  std::shared_ptr<LocalGpuRegion> region_;
};

}  // namespace kvkeep::client
