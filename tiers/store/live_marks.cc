#include "tiers/store/live_marks.h"

#include <algorithm>
#include <array>

#include "tiers/base/checksum.h"

namespace kvkeep::store_internal {

uint64_t LiveMarks::Of(Incarnation incarnation, Generation generation) {
  const std::array<uint64_t, 2> placement{incarnation.value(), generation.value()};
  return std::max<uint64_t>(Xxh3(std::as_bytes(std::span(placement))), 1);
}

uint64_t LiveMarks::CountSet() const {
  uint64_t set = 0;
  for (uint64_t block = 0; block < marks_.size(); ++block) set += at(BlockNumber(block)) != 0;
  return set;
}

}  // namespace kvkeep::store_internal
