// A page of ListObjectsV2. Pure functions.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include "tiers/objects/object_store.h"

namespace kvkeep {

// DataLoss: no page, or one that contradicts itself or is over a limit.
absl::StatusOr<ObjectListing> ParseS3Listing(absl::string_view body);

}  // namespace kvkeep
