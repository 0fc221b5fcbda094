// CopyPlan: turns runs of a registered range into the fewest copies to ask the driver for. Pure: it
// knows numbers, no driver and no memory.
//
// The client's numbers (registration, offset, bytes) are checked here, overflow-safe, before
// anything is done. Runs that lie one behind the other in both memories become one piece: the
// driver never merges them itself, and each piece costs it half a microsecond. No piece crosses the
// border of an arena segment, as host memory must be registered as a whole, by one registration, or
// not at all.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tiers/base/strong_int.h"

namespace kvkeep {

// A registration of one device, never used again in the life of the process. Zero: none.
using GpuRegistrationId = StrongInt<struct GpuRegistrationIdTag, uint64_t>;

// Bytes that are copied between a registered range and the arena.
struct GpuRun {
  GpuRegistrationId registration;
  uint64_t offset = 0;        // in the registered range
  uint64_t arena_offset = 0;  // the daemon's own: out of the arena is a bug
  uint64_t bytes = 0;
};

// Where a registered range lies for this process's driver.
struct GpuRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

struct CopyPlanLimits {
  uint64_t arena_bytes = 0;
  uint64_t segment_bytes = 0;  // of the arena; the last one may be shorter
  size_t max_runs = 65536;
  // Drivers crash or hang with tens of thousands.
  size_t max_batch = 4096;
};

class CopyPlan {
 public:
  struct Piece {
    uint64_t address = 0;  // of the device
    uint64_t arena_offset = 0;
    uint64_t bytes = 0;
    bool operator==(const Piece&) const = default;
  };
  // Null: not registered.
  using FindRange = absl::FunctionRef<const GpuRange*(GpuRegistrationId)>;

  // InvalidArgument names the run and the field, NotFound the registration.
  static absl::StatusOr<CopyPlan> Make(std::span<const GpuRun> runs, FindRange find,
                                       const CopyPlanLimits& limits);

  std::span<const Piece> pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }
  // The pieces in rows of at most max_batch.
  size_t batches() const { return (pieces_.size() + max_batch_ - 1) / max_batch_; }
  std::span<const Piece> batch(size_t number) const;

 private:
  void Add(Piece piece, uint64_t segment_bytes);

  std::vector<Piece> pieces_;
  uint64_t bytes_ = 0;
  size_t max_batch_ = 1;
};

}  // namespace kvkeep
