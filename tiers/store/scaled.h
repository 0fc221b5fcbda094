// Scaled: a part of a whole number, without overflow on the way.
#pragma once

#include <absl/numeric/int128.h>

#include <cstdint>

namespace kvkeep::store_internal {

// Returns `whole` * `part` / `of`, rounded down. REQUIRES: `of` > 0; the result fits.
inline uint64_t Scaled(uint64_t whole, uint64_t part, uint64_t of) {
  return static_cast<uint64_t>(absl::uint128(whole) * part / of);
}

}  // namespace kvkeep::store_internal
