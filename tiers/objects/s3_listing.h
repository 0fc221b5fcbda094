// S3Listing: a page of ListObjectsV2. Pure functions.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tiers/objects/http_date.h"

namespace kvkeep {

struct S3ListedObject {
  std::string key;  // prefix included
  uint64_t bytes = 0;
  UnixSeconds modified;

  bool operator==(const S3ListedObject&) const = default;
};

struct S3Listing {
  static constexpr size_t kMaxObjects = 1000;  // S3's own
  static constexpr size_t kMaxTokenBytes = 4096;

  std::vector<S3ListedObject> objects;
  std::string next_token;  // empty: the last page

  bool operator==(const S3Listing&) const = default;
};

// DataLoss: no page, or one that contradicts itself or is over a limit.
absl::StatusOr<S3Listing> ParseS3Listing(absl::string_view body);

}  // namespace kvkeep
