#include "tiers/objects/s3_url.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMinBucketBytes = 3, kMaxBucketBytes = 63;
constexpr size_t kMaxRegionBytes = 63, kMaxHostBytes = 253, kMaxLabelBytes = 63;
constexpr size_t kShownBytes = 80;

absl::Status Refuse(absl::string_view field, absl::string_view value, absl::string_view why) {
  // Keeps only printable characters: the text goes into a log.
  std::string shown(value.substr(0, kShownBytes));
  std::replace_if(shown.begin(), shown.end(),
                  [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return absl::InvalidArgumentError(absl::StrCat("g4.", field, ": '", shown, "' ", why));
}

bool IsLowerOrDigit(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); }

bool IsIpv4(const std::string& text) {
  in_addr ignored;
  return inet_pton(AF_INET, text.c_str(), &ignored) == 1;
}

absl::Status CheckBucket(const std::string& bucket) {
  const auto refuse = [&](absl::string_view why) { return Refuse("bucket", bucket, why); };
  if (bucket.size() < kMinBucketBytes || bucket.size() > kMaxBucketBytes) {
    return refuse(absl::StrCat("has ", bucket.size(), " characters; 3 to 63 are allowed"));
  }
  const bool known = std::all_of(bucket.begin(), bucket.end(), [](char c) {
    return IsLowerOrDigit(c) || c == '.' || c == '-';
  });
  if (!known) return refuse("may hold a-z, 0-9, '.' and '-' only");
  if (!IsLowerOrDigit(bucket.front()) || !IsLowerOrDigit(bucket.back())) {
    return refuse("must begin and end with a letter or digit");
  }
  if (absl::StrContains(bucket, "..")) return refuse("has two dots in a row");
  if (IsIpv4(bucket)) return refuse("looks like an IP address");
  return absl::OkStatus();
}

// Other characters than letters, digits and these have a meaning to some server, proxy or shell.
absl::Status CheckPrefix(const std::string& prefix) {
  const auto refuse = [&](absl::string_view why) { return Refuse("prefix", prefix, why); };
  if (prefix.size() > S3Urls::kMaxPrefixBytes) {
    return refuse(absl::StrCat("has ", prefix.size(), " bytes; the most are ",
                               S3Urls::kMaxPrefixBytes));
  }
  for (const char c : prefix) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::StrContains("!-_.*'()/", absl::string_view(&c, 1))) {
      continue;
    }
    return refuse("may hold letters, digits and !-_.*'()/ only");
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(prefix, '/');
  for (size_t i = 0; !prefix.empty() && i < parts.size(); ++i) {
    if (parts[i].empty() && i + 1 < parts.size()) {
      return refuse("must not begin with '/' or hold '//'");
    }
    if (parts[i] == "." || parts[i] == "..") return refuse("has a part that is '.' or '..'");
  }
  return absl::OkStatus();
}

absl::Status CheckRegion(const std::string& region) {
  const bool known = std::all_of(region.begin(), region.end(),
                                 [](char c) { return IsLowerOrDigit(c) || c == '-'; });
  if (!known || region.empty() || region.size() > kMaxRegionBytes) {
    return Refuse("region", region, "must be 1 to 63 of a-z, 0-9 and '-'");
  }
  return absl::OkStatus();
}

bool IsHostName(const std::string& host) {
  if (host.empty() || host.size() > kMaxHostBytes) return false;
  for (const absl::string_view label : absl::StrSplit(host, '.')) {
    const bool known = std::all_of(label.begin(), label.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    });
    if (!known || label.empty() || label.size() > kMaxLabelBytes || label.front() == '-') {
      return false;
    }
  }
  return true;
}

bool IsIpv6(const std::string& text) {
  in6_addr ignored;  // inet_pton reads up to a zero byte
  return text.find('\0') == std::string::npos && inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

}  // namespace

std::string S3Target::url() const {
  return absl::StrCat(origin, path, query.empty() ? "" : "?", query);
}

absl::StatusOr<S3Urls::Endpoint> S3Urls::ParseEndpoint(const std::string& text,
                                                       const S3UrlOptions& options) {
  const auto refuse = [&](absl::string_view why) { return Refuse("endpoints", text, why); };
  absl::string_view rest = text;
  Endpoint endpoint;
  endpoint.plain = absl::ConsumePrefix(&rest, "http://");
  if (!endpoint.plain && !absl::ConsumePrefix(&rest, "https://")) {
    return refuse("must begin with https:// or http://");
  }
  absl::ConsumeSuffix(&rest, "/");
  if (absl::StrContains(rest, "@")) {
    return refuse("holds a user; credentials belong in g4.credentials_file");
  }
  if (rest.find_first_of("/?#") != absl::string_view::npos) {
    return refuse("must end behind host and port; the bucket is g4.bucket, a path g4.prefix");
  }
  // The colon of a port lies behind the bracket of an IPv6 address.
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != absl::string_view::npos &&
                        (bracket == absl::string_view::npos || colon > bracket);
  const std::string host(has_port ? rest.substr(0, colon) : rest);
  uint32_t port = endpoint.plain ? 80 : 443;
  const uint32_t own_port = port;
  if (has_port && (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port == 0 || port > 65535 ||
                   !absl::ascii_isdigit(static_cast<unsigned char>(rest[colon + 1])))) {
    return refuse("has no port from 1 to 65535 behind its colon");
  }
  const bool ipv6 = host.size() > 2 && host.front() == '[' && host.back() == ']' &&
                    IsIpv6(host.substr(1, host.size() - 2));
  if (!ipv6 && !IsHostName(host)) return refuse("has no host that is a name or an address");
  if (options.virtual_host && (ipv6 || IsIpv4(host))) {
    return refuse("is an address: with g4.virtual_host the bucket goes before a host's name");
  }
  endpoint.host = options.virtual_host ? absl::StrCat(options.bucket, ".", host) : host;
  if (endpoint.host.size() > kMaxHostBytes) {
    return refuse(absl::StrCat("and the bucket make a host of ", endpoint.host.size(),
                               " characters; the most are ", kMaxHostBytes));
  }
  if (port != own_port) absl::StrAppend(&endpoint.host, ":", port);
  endpoint.origin = absl::StrCat(endpoint.plain ? "http://" : "https://", endpoint.host);
  return endpoint;
}

absl::StatusOr<S3Urls> S3Urls::Make(const S3UrlOptions& options) {
  KVKEEP_RETURN_IF_ERROR(CheckBucket(options.bucket));
  KVKEEP_RETURN_IF_ERROR(CheckPrefix(options.prefix));
  KVKEEP_RETURN_IF_ERROR(CheckRegion(options.region));
  if (options.endpoints.empty() || options.endpoints.size() > kMaxEndpoints) {
    return absl::InvalidArgumentError(absl::StrCat("g4.endpoints: has ", options.endpoints.size(),
                                                   " entries; 1 to ", kMaxEndpoints,
                                                   " are allowed"));
  }
  S3Urls urls;
  for (const std::string& text : options.endpoints) {
    KVKEEP_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text, options));
    for (const Endpoint& other : urls.endpoints_) {
      if (other.origin == endpoint.origin) return Refuse("endpoints", text, "is there twice");
    }
    // A certificate for *.host does not cover a.b.host.
    if (options.virtual_host && !endpoint.plain && absl::StrContains(options.bucket, ".")) {
      return Refuse("bucket", options.bucket,
                    "has a dot, so no certificate fits its host; set g4.virtual_host: false");
    }
    urls.endpoints_.push_back(std::move(endpoint));
  }
  urls.root_ = options.virtual_host ? "/" : absl::StrCat("/", options.bucket, "/");
  urls.prefix_ = options.prefix;
  if (!urls.prefix_.empty() && urls.prefix_.back() != '/') urls.prefix_.push_back('/');
  urls.region_ = options.region;
  return urls;
}

bool S3Urls::any_plain() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return endpoint.plain; });
}

S3Target S3Urls::Object(EndpointNumber endpoint, absl::string_view name) const {
  KVKEEP_CHECK(endpoint.value() < endpoints_.size());
  KVKEEP_CHECK(!name.empty() && prefix_.size() + name.size() <= kMaxKeyBytes);
  const Endpoint& at = endpoints_[endpoint.value()];
  return {at.origin, at.host, absl::StrCat(root_, EncodeUriPath(prefix_), EncodeUriPath(name)), ""};
}

S3Target S3Urls::Bucket(EndpointNumber endpoint, const UriQuery& query) const {
  KVKEEP_CHECK(endpoint.value() < endpoints_.size());
  const Endpoint& at = endpoints_[endpoint.value()];
  return {at.origin, at.host, root_, EncodeUriQuery(query)};
}

}  // namespace kvkeep
