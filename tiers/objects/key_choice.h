// Chooses the source of a bucket's keys by the configuration and the environment.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/s3_key_source.h"

namespace kvkeep {

struct S3KeyOptions {
  // "file", "environment", "web_identity", "container", "instance" or "process"; "auto": the first
  // that is there of file, process, environment, web identity and container. An instance's metadata
  // is asked only when it is named, as elsewhere nobody answers, or somebody else does.
  std::string credentials = "auto";
  std::string file;     // FileKeySource
  std::string process;  // ProcessKeySource's command
};

// Time in which every source answers.
inline constexpr std::chrono::seconds kLongestKeyFetch{65};

// Makes a source that answers inside Fetch, within kLongestKeyFetch. InvalidArgument names the
// option, NotFound tells which sources were looked for. `region`: of STS, where the environment
// names none. `http`: how the bucket is reached; its `ca_file` and proxy hold for STS as well,
// metadata services are asked directly. `clock` outlives the source.
absl::StatusOr<std::unique_ptr<S3KeySource>> MakeS3KeySource(const S3KeyOptions& options,
                                                             const std::string& region,
                                                             const CurlEngineOptions& http,
                                                             const KeyEnvironment& environment,
                                                             Clock* clock);

}  // namespace kvkeep
