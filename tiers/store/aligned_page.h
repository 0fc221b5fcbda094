// AlignedPage: one 4 KiB page for direct I/O, for headers on their way to or from a lower tier.
//
// If it is not ok(), there was no memory for it, and nothing may be read or written.
#pragma once

#include <absl/status/status.h>

#include <cstdlib>

#include "tiers/base/image.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {

struct AlignedPage {
  AlignedPage() : bytes(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBlockBytes))) {}
  bool ok() const { return bytes != nullptr; }
  static absl::Status NoMemory() {
    return absl::UnavailableError("there is no memory for a page of 4096 bytes");
  }
  ~AlignedPage() { std::free(bytes); }
  AlignedPage(const AlignedPage&) = delete;
  AlignedPage& operator=(const AlignedPage&) = delete;
  HeaderPage span() { return HeaderPage(bytes, kBlockBytes); }
  std::byte* const bytes;
};

}  // namespace kvkeep::store_internal
