// Parses answers with keys: JSON of metadata services and of a credential process, XML of STS. Pure
// functions.
//
// Errors name the field and the fault, never the contents.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string>

#include "tiers/objects/s3_keys.h"

namespace kvkeep {

// "Token" is the name of a metadata service's session token, and its "Code", where there is one,
// must be Success.
absl::StatusOr<S3Keys> ParseMetadataKeys(absl::string_view json);
// "SessionToken", and a "Version" that must be 1.
absl::StatusOr<S3Keys> ParseProcessKeys(absl::string_view json);
// The answer to AssumeRoleWithWebIdentity.
absl::StatusOr<S3Keys> ParseStsKeys(absl::string_view xml);
// Returns the code in the body of an error of STS: one word; empty when it has none.
std::string StsErrorCode(absl::string_view xml);

}  // namespace kvkeep
