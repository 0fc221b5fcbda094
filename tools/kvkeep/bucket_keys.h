// The access keys of a bucket, for verbs that ask one.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "tiers/objects/s3_keys.h"

namespace kvkeep::tools {

// Of the file (s3_key_source.h); without one, of this process's environment. NotFound: of neither.
absl::StatusOr<SharedS3Keys> FindBucketKeys(const std::string& file);

}  // namespace kvkeep::tools
