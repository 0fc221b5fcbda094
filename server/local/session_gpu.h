// SessionGpu: the GPU memory that one session registered, by number. One thread, the loop's.
//
// GpuRegion is one such registration. Requests under way hold those that they name; the handle is
// given back when the last holder lets go, on whichever thread that is.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "proto/local/protocol.h"
#include "server/gpu/gpu_path.h"
#include "server/local/context.h"
#include "server/local/gpu_account.h"
#include "server/local/run_table.h"
#include "tiers/base/extent.h"

namespace kvkeep {

class GpuRegion {
 public:
  GpuRegion(std::shared_ptr<const LocalContext> context, const GpuPath::Registered& registered,
            const local::RegisterGpuMemory& request, std::shared_ptr<GpuRegistrationHold> hold);
  ~GpuRegion();
  GpuRegion(const GpuRegion&) = delete;
  GpuRegion& operator=(const GpuRegion&) = delete;

  GpuDevice* device() const { return registered_.device; }
  const std::shared_ptr<GpuAccount>& account() const { return account_; }
  GpuRegistrationId id() const { return registered_.id; }
  uint64_t bytes() const { return bytes_; }
  uint64_t generation() const { return generation_; }
  // Closes the handle, then calls `closed`, on any thread. Copies that the driver does not have yet
  // are cancelled. Call at most once, on the endpoint's thread; if nobody does, the last holder
  // closes the handle.
  void Close(GpuDevice::UnregisterDone closed);

 private:
  const std::shared_ptr<const LocalContext> context_;
  const GpuPath::Registered registered_;
  const uint64_t bytes_;
  const uint64_t generation_;
  const std::shared_ptr<GpuAccount> account_;
  std::shared_ptr<GpuRegistrationHold> hold_;  // until the handle is closed
  std::atomic<bool> closed_{false};
};
using GpuRegionPtr = std::shared_ptr<GpuRegion>;

class SessionGpu {
 public:
  struct Begun {
    uint32_t number = 0;
    std::shared_ptr<GpuRegistrationHold> hold;  // of its tenant's account, for the region
  };

  // `account`: of its tenant; null: only the limits of the session and of all sessions hold.
  SessionGpu(std::shared_ptr<const LocalContext> context, std::shared_ptr<GpuAccount> account);

  // Checks a registration against the limits and takes a number for it; from here on it counts.
  // `descriptors`: how many came with it.
  absl::StatusOr<Begun> Begin(const local::RegisterGpuMemory& request, size_t descriptors);
  // Ends a registration with its region; null: it was refused.
  void End(uint32_t number, GpuRegionPtr region);

  // InvalidArgument: no such number, or of another generation.
  absl::StatusOr<GpuRegionPtr> Find(uint32_t number, uint64_t generation) const;
  // Takes a region out of the table. FailedPrecondition: a request names it.
  absl::StatusOr<GpuRegionPtr> Take(uint32_t number, uint64_t generation);
  // Ends the session's part: its handles are closed as soon as nothing is under way in them.
  // Requests that name them must be cancelled before.
  void Clear();

 private:
  struct Slot {
    uint64_t bytes = 0;
    GpuRegionPtr region;  // null until it is open
  };
  absl::Status CheckSessionLimits(const local::RegisterGpuMemory& request) const;

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<GpuAccount> account_;
  uint32_t next_ = 1;
  uint64_t bytes_ = 0;
  absl::flat_hash_map<uint32_t, Slot> slots_;
};

// The runs of a request, in memory of one GPU.
class GpuRuns {
 public:
  // Says whether a run may be bytes that go nowhere (local::kSkippedBytes).
  enum class Skips { kNever, kAllowed };
  // InvalidArgument names the run.
  static absl::StatusOr<GpuRuns> Check(std::span<const local::GpuMemoryRun> runs,
                                       const SessionGpu& memory, Skips skips);

  const RunTable& table() const { return table_; }
  // Checks that each run belongs to one chunk: otherwise a few bytes of a message could ask for any
  // number of copies. `of_chunks`: the runs of all chunks together.
  absl::Status CheckCount(uint64_t of_chunks) const;
  GpuDevice* device() const { return regions_.front()->device(); }
  const std::shared_ptr<GpuAccount>& account() const { return regions_.front()->account(); }
  // Copies between the arena and this memory; the copy is charged to the tenant. If that exceeds
  // the tenant's limit, and another request exceeds it already, the copy ends at once, on this
  // thread. REQUIRES: Drop is not called before `done`.
  void Copy(GpuCopy copy, LocalCounters* counters, GpuDevice::CopyDone done) const;
  // Adds the copies between the bytes [offset, offset + bytes) of a chunk's payload, which begins
  // at `first_run`, and where its image lies in the arena; skipped bytes have no copies.
  void Append(uint32_t first_run, uint64_t offset, uint64_t bytes, const ExtentList& extents,
              std::vector<GpuRun>* copies) const;
  // Lets go of the memory. REQUIRES: no copy of it is under way.
  void Drop() {
    regions_.clear();
    copies_.reset();
  }

 private:
  absl::Status AddSkipped(const local::GpuMemoryRun& run);

  RunTable table_;
  std::vector<GpuRegionPtr> regions_;
  std::shared_ptr<GpuRequestCopies> copies_;
};

}  // namespace kvkeep
