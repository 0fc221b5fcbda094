// Divides the capacity of a device's directory: superblock and index on one side, data files on the
// other. Pure arithmetic, the same at format, at open and in `plan`.
//
//   index allowance  max(32 MiB, capacity / 32)    superblock, labels' inodes, live map, RocksDB
//   data bytes       capacity - allowance, down to a multiple of 1 MiB
//   data files       of file_bytes each, the last one smaller but at least 1 MiB (else left out)
//
// A larger capacity only ever makes files longer or adds some: so a device can grow in place.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

inline constexpr uint64_t kMinDeviceCapacityBytes = 64 * kMiB;
inline constexpr uint64_t kMinDataFileBytes = 1 * kMiB;
inline constexpr uint64_t kMaxDataFileBytes = 1 * kTiB;
inline constexpr size_t kMaxDataFiles = 1000;

struct DeviceGeometry {
  uint64_t capacity_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t index_allowance = 0;
  uint64_t live_map_bytes = 0;  // of the allowance
  std::vector<uint64_t> files;  // size of each data file

  uint64_t data_bytes() const;
  // Returns the limit of the index's bytes for adds: a quarter of the allowance is left for
  // removals and compaction.
  uint64_t index_budget() const {
    KVKEEP_CHECK(live_map_bytes <= index_allowance);
    const uint64_t for_index = index_allowance - live_map_bytes;
    return for_index - for_index / 4;
  }
  // Returns a buffer size with which log and buffers of a small device fit its index allowance.
  uint64_t index_write_buffer_bytes() const;
};

// REQUIRES: capacity_bytes >= kMinDeviceCapacityBytes, file_bytes within the limits.
DeviceGeometry MakeGeometry(uint64_t capacity_bytes, uint64_t file_bytes);

}  // namespace kvkeep
