// GpuPath: copies between chunks and GPU memory, for workers on the daemon's host.
//
//   GpuPath gpu(client.get());
//   // Once: the daemon opens the engine's KV memory.
//   GpuRegion region = gpu.Register({.address = kv, .bytes = bytes}).value();
//   // From then on the daemon copies; `runs` are of a KvPlanner (client/gpu/kv_planner.h).
//   gpu.Put(ns, {{.key = key, .runs = runs}});
//   gpu.Get(ns, {{.key = key, .runs = other_runs}});
//
// There are two ways. With registered memory the daemon copies, and this process does nothing. With
// a pinned arena (client/gpu/pinned_arena.h) this process copies by itself, from chunks that it has
// acquired.
//
// Order. Synchronise the stream that wrote a put's source, or last used a get's target, before the
// call. Leave those bytes alone until the call has ended. If it ended with DEADLINE_EXCEEDED or
// UNAVAILABLE, leave them alone until GpuRegion::in_use is false for every region that it named;
// bytes of a put in `reused` regions only until its deadline. A get that is not a kHit may leave
// anything in its runs.
//
// Local path only, elsewhere FAILED_PRECONDITION. Every refusal says why, and the calls without a
// GPU path serve the same chunks. UNIMPLEMENTED and FAILED_PRECONDITION: this daemon will never
// have a GPU path. Borrows the client, which must outlive it; cheap to make. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "client/client.h"
#include "client/gpu/gpu_memory.h"
#include "client/gpu/gpu_region.h"
#include "client/gpu/gpu_values.h"
#include "client/gpu/pinned_arena.h"

namespace kvkeep::client {

// Memory of this process on one of its GPUs, in one allocation.
struct GpuRange {
  uint64_t address = 0;  // the driver's
  uint64_t bytes = 0;
  std::string library = "libcuda.so.1";  // the driver: a name that the loader looks up, or a path
  bool reused = false;                   // as GpuMemory's
};

class GpuPath {
 public:
  explicit GpuPath(Client* client) : client_(client) {}

  // Registers this process's mapping of the arena with the GPU's driver, in the background.
  // NOT_FOUND: no driver, or no such device. UNIMPLEMENTED: this GPU cannot, or built without.
  absl::StatusOr<PinnedArena> PinArena(const PinArenaOptions& options);

  // REQUIRES: a context is current on this thread, as for all that works with that memory. If the
  // driver does not export the memory, or the daemon refuses it, the error has their message.
  absl::StatusOr<GpuRegion> Register(const GpuRange& range, Deadline deadline = {});
  // Registers memory that the caller has exported from the driver itself.
  absl::StatusOr<GpuRegion> Register(GpuMemory memory, Deadline deadline = {});

  // PutOptions::checksum is INVALID_ARGUMENT: the bytes do not come here. A chunk whose bytes did
  // not come in time is kRejected, as NOT_COPIED.
  void Put(const Namespace& ns, std::vector<GpuPutChunk> chunks, const GpuPutOptions& options,
           Callback<PutResult> done);
  // A chunk of another size than its runs' is a miss or, as its message says, kUnfinished.
  void Get(const Namespace& ns, std::vector<GpuGetChunk> chunks, const GpuGetOptions& options,
           Callback<GetResult> done);
  // The blocking forms.
  absl::StatusOr<PutResult> Put(const Namespace& ns, std::vector<GpuPutChunk> chunks,
                                const GpuPutOptions& options = {});
  absl::StatusOr<GetResult> Get(const Namespace& ns, std::vector<GpuGetChunk> chunks,
                                const GpuGetOptions& options = {});

  GpuStats stats() const;

 private:
  Client* const client_;
};

}  // namespace kvkeep::client
