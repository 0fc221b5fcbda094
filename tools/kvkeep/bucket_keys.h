// A bucket on the command line, and its access keys, for verbs that ask one.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "tiers/objects/key_choice.h"
#include "tiers/objects/s3_keys.h"
#include "tiers/objects/s3_url.h"

namespace CLI {
class App;
}

namespace kvkeep::tools {

struct BucketAsked {
  S3UrlOptions urls{.endpoints = {""}};
  S3KeyOptions keys;
  CurlEngineOptions http;
};
// The options but for endpoint and bucket, which verbs name as they like. `asked` lives as long as
// the verb.
void AddBucketOptions(CLI::App& verb, BucketAsked& asked);

// Waits for them (key_choice.h). NotFound: there is no source, or it has nothing.
absl::StatusOr<SharedS3Keys> FindBucketKeys(const S3KeyOptions& keys, const std::string& region,
                                            const CurlEngineOptions& http);

}  // namespace kvkeep::tools
