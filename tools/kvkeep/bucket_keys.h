// A bucket on the command line, and its access keys, for verbs that use one.
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
// Adds the options other than endpoint and bucket, which each verb adds itself. `asked` outlives
// the verb.
void AddBucketOptions(CLI::App& verb, BucketAsked& asked);

// Waits for the keys (key_choice.h). NotFound: there is no source, or it has no keys.
absl::StatusOr<SharedS3Keys> FindBucketKeys(const S3KeyOptions& keys, const std::string& region,
                                            const CurlEngineOptions& http);

}  // namespace kvkeep::tools
