#include "tiers/nvme/geometry.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/nvme/live_map.h"

namespace kvkeep {

uint64_t DeviceGeometry::data_bytes() const {
  uint64_t bytes = 0;
  for (const uint64_t file : files) bytes += file;
  return bytes;
}

uint64_t DeviceGeometry::index_write_buffer_bytes() const {
  return std::clamp(index_allowance / 32, kMiB, 8 * kMiB);
}

DeviceGeometry MakeGeometry(uint64_t capacity_bytes, uint64_t file_bytes) {
  KVKEEP_CHECK(capacity_bytes >= kMinDeviceCapacityBytes);
  KVKEEP_CHECK(file_bytes >= kMinDataFileBytes && file_bytes <= kMaxDataFileBytes);
  KVKEEP_CHECK(file_bytes % kBlockBytes == 0);
  DeviceGeometry geometry;
  geometry.capacity_bytes = capacity_bytes;
  geometry.file_bytes = file_bytes;
  geometry.index_allowance = std::max(32 * kMiB, capacity_bytes / 32);
  uint64_t left = (capacity_bytes - geometry.index_allowance) / kMiB * kMiB;
  while (left >= kMinDataFileBytes) {
    geometry.files.push_back(std::min(left, file_bytes));
    left -= geometry.files.back();
  }
  KVKEEP_CHECK(!geometry.files.empty());
  KVKEEP_CHECK(geometry.files.back() % kBlockBytes == 0);
  geometry.live_map_bytes = LiveMapBytes(BlockCount(geometry.data_bytes() / kBlockBytes));
  KVKEEP_CHECK(geometry.live_map_bytes < geometry.index_allowance);
  KVKEEP_CHECK(geometry.data_bytes() + geometry.index_allowance <= capacity_bytes);
  return geometry;
}

}  // namespace kvkeep
