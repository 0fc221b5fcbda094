// DecodeGuarded, DecodeClaimGuarded: DecodeHeader and DecodeClaim of a page in the arena that may
// be broken memory (memory_errors.h).
#pragma once

#include <absl/status/statusor.h>

#include <array>

#include "tiers/base/image.h"
#include "tiers/base/memory_errors.h"

namespace kvkeep::store_internal {

// Decodes a header. DataLoss: it cannot be read, or is not a header.
inline absl::StatusOr<ImageHeader> DecodeGuarded(ConstHeaderPage page, const MacKey& mac_key) {
  std::array<std::byte, kHeaderBytes> copy;
  if (!GuardedCopy(copy.data(), page)) {
    return absl::DataLossError("the header's memory cannot be read");
  }
  return DecodeHeader(copy, mac_key);
}

// Decodes the part of a header that needs no MAC.
inline absl::StatusOr<ImageClaim> DecodeClaimGuarded(ConstHeaderPage page) {
  std::array<std::byte, kHeaderBytes> copy;
  if (!GuardedCopy(copy.data(), page.first(kClaimBytes))) {
    return absl::DataLossError("the header's memory cannot be read");
  }
  return DecodeClaim(copy);
}

}  // namespace kvkeep::store_internal
