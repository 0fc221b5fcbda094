// S3Urls: the place of a bucket (endpoints, name, prefix of its objects, region) and the address of
// each object there, as sent and as signed.
//
// Made from the configuration, and refused if no server could take it: the error names the field,
// its value and the limit. A constant value, hence thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string>
#include <vector>

#include "tiers/base/strong_int.h"
#include "tiers/objects/uri_encode.h"

namespace kvkeep {

using EndpointNumber = StrongInt<struct EndpointNumberTag, uint32_t>;

// The words of the configuration (g4.*).
struct S3UrlOptions {
  std::vector<std::string> endpoints;  // "https://host", "http://host:port"; all of one bucket
  std::string bucket;
  std::string prefix;  // before all names; a '/' is added where there is none at its end
  std::string region = "us-east-1";
  bool virtual_host = false;  // the bucket in the host's name, as AWS wants it, not in the path
};

// The target of a request. `path` and `query` are encoded: the signature covers these very bytes.
struct S3Target {
  std::string origin;  // scheme, host and port
  std::string host;    // the value of the header: without the scheme's own port
  std::string path;
  std::string query;

  std::string url() const;
};

class S3Urls {
 public:
  static constexpr size_t kMaxEndpoints = 16;
  static constexpr size_t kMaxPrefixBytes = 512;
  static constexpr size_t kMaxKeyBytes = 1024;  // S3's: prefix and name

  static absl::StatusOr<S3Urls> Make(const S3UrlOptions& options);

  uint32_t endpoints() const { return static_cast<uint32_t>(endpoints_.size()); }
  const std::string& region() const { return region_; }
  const std::string& prefix() const { return prefix_; }
  // Returns whether requests to any of them can be read on their way.
  bool any_plain() const;

  // REQUIRES: a name, short enough for kMaxKeyBytes.
  S3Target Object(EndpointNumber endpoint, absl::string_view name) const;
  S3Target Bucket(EndpointNumber endpoint, const UriQuery& query) const;

 private:
  struct Endpoint {
    std::string origin, host;
    bool plain = false;
  };
  static absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text,
                                                const S3UrlOptions& options);

  std::vector<Endpoint> endpoints_;
  std::string root_;  // the path of the bucket, encoded: "/" or "/bucket/"
  std::string prefix_, region_;
};

}  // namespace kvkeep
