#include "tiers/host/segment_files.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

size_t ArenaGeometry::segment_count() const {
  KVKEEP_CHECK(segment_bytes > 0);
  return DivideRoundUp(capacity_bytes, segment_bytes);
}

uint64_t ArenaGeometry::bytes_of(size_t segment) const {
  KVKEEP_CHECK(segment < segment_count());
  return std::min(segment_bytes, capacity_bytes - segment * segment_bytes);
}

uint64_t ArenaGeometry::marks_bytes() const {
  return capacity_bytes / kBlockBytes * sizeof(uint64_t);
}

}  // namespace kvkeep
