// A bucket on the command line, and its access keys, for verbs that ask one.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "tiers/objects/s3_keys.h"
#include "tiers/objects/s3_url.h"

namespace CLI {
class App;
}

namespace kvkeep::tools {

struct BucketAsked {
  S3UrlOptions urls{.endpoints = {""}};
  std::string credentials_file, ca_file;
};
// The options but for endpoint and bucket, which verbs name as they like. `asked` lives as long as
// the verb.
void AddBucketOptions(CLI::App& verb, BucketAsked& asked);

// Of the file (s3_key_source.h); without one, of this process's environment. NotFound: of neither.
absl::StatusOr<SharedS3Keys> FindBucketKeys(const std::string& file);

}  // namespace kvkeep::tools
