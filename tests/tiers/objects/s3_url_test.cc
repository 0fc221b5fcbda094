#include "tiers/objects/s3_url.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

S3UrlOptions GoodUrl() {
  return {.endpoints = {"https://s3.eu-central-1.amazonaws.com"},
          .bucket = "kv-cache",
          .prefix = "fleet/a",
          .region = "eu-central-1"};
}

// Checks that all words are in the error's text.
void CheckRefused(const S3UrlOptions& options, const std::vector<std::string>& words) {
  const absl::Status status = S3Urls::Make(options).status();
  INFO(status);
  CHECK(absl::IsInvalidArgument(status));
  for (const std::string& word : words) CHECK(absl::StrContains(status.message(), word));
}

}  // namespace

TEST_CASE("path style has the bucket in the path, virtual-hosted style in the host") {
  S3UrlOptions options = GoodUrl();
  const S3Target path = S3Urls::Make(options)->Object(EndpointNumber(0), "1/0ab/x y");
  CHECK(path.url() == "https://s3.eu-central-1.amazonaws.com/kv-cache/fleet/a/1/0ab/x%20y");
  CHECK(path.host == "s3.eu-central-1.amazonaws.com");
  CHECK(path.path == "/kv-cache/fleet/a/1/0ab/x%20y");
  options.virtual_host = true;
  const S3Target host = S3Urls::Make(options)->Object(EndpointNumber(0), "1/0ab/x y");
  CHECK(host.url() == "https://kv-cache.s3.eu-central-1.amazonaws.com/fleet/a/1/0ab/x%20y");
  CHECK(host.host == "kv-cache.s3.eu-central-1.amazonaws.com");
  const S3Target list =
      S3Urls::Make(options)->Bucket(EndpointNumber(0), {{"list-type", "2"}, {"prefix", "a/"}});
  CHECK(list.url() ==
        "https://kv-cache.s3.eu-central-1.amazonaws.com/?list-type=2&prefix=a%2F");
}

TEST_CASE("a port is part of the host unless it is the scheme's own") {
  S3UrlOptions options = GoodUrl();
  options.endpoints = {"http://127.0.0.1:9000", "http://[::1]:9000/", "https://minio:443",
                       "http://minio:80", "https://minio:80", "http://minio_2"};
  options.prefix.clear();
  const absl::StatusOr<S3Urls> urls = S3Urls::Make(options);
  REQUIRE(urls.ok());
  REQUIRE(urls->endpoints() == 6);
  const std::vector<std::string> origins = {"http://127.0.0.1:9000", "http://[::1]:9000",
                                            "https://minio", "http://minio", "https://minio:80",
                                            "http://minio_2"};
  for (uint32_t i = 0; i < 6; ++i) {
    CHECK(urls->Object(EndpointNumber(i), "n").url() == origins[i] + "/kv-cache/n");
  }
  CHECK(urls->any_plain());
  CHECK_FALSE(S3Urls::Make(GoodUrl())->any_plain());
}

TEST_CASE("an endpoint that is none is refused by its field") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"s3.example.com", "begin with https://"},
      {"ftp://s3.example.com", "begin with https://"},
      {"https://", "no host"},
      {"https://:9000", "no host"},
      {"https://a..b", "no host"},
      {"https://-a", "no host"},
      {"https://a b", "no host"},
      {"https://[::1", "no host"},
      {"https://[zz]", "no host"},
      {std::string("https://[::1\0\0]", 15), "no host"},
      {"https://host:", "no port"},
      {"https://host:0", "no port"},
      {"https://host:65536", "no port"},
      {"https://host:+80", "no port"},
      {"https://host:80x", "no port"},
      {"https://key:secret@host", "credentials belong in"},
      {"https://host/bucket", "g4.prefix"},
      {"https://host?x", "g4.prefix"},
      {"https://" + std::string(64, 'a'), "no host"},
  };
  for (const auto& [endpoint, why] : bad) {
    S3UrlOptions options = GoodUrl();
    options.endpoints = {endpoint};
    CheckRefused(options, {"g4.endpoints", why});
  }
  S3UrlOptions options = GoodUrl();
  options.endpoints.clear();
  CheckRefused(options, {"g4.endpoints", "1 to 16"});
  options.endpoints.assign(17, "https://host");
  CheckRefused(options, {"g4.endpoints", "17", "1 to 16"});
  options.endpoints.assign(2, "https://host");
  CheckRefused(options, {"g4.endpoints", "twice"});
  options.virtual_host = true;
  options.endpoints = {"http://10.0.0.1"};
  CheckRefused(options, {"g4.endpoints", "g4.virtual_host"});
  const std::string label(60, 'a');
  options.endpoints = {"http://" + label + "." + label + "." + label + "." + label};
  options.bucket = std::string(40, 'b');
  CheckRefused(options, {"g4.endpoints", "the most are 253"});
}

TEST_CASE("a bucket that S3 does not allow is refused, and one whose host no certificate fits") {
  for (const char* bucket : {"", "ab", "Upper", "under_score", "-a-", "abc-", ".abc", "a..b",
                             "192.168.0.1", "a/b", "a b\n"}) {
    S3UrlOptions options = GoodUrl();
    options.bucket = bucket;
    CheckRefused(options, {"g4.bucket"});
  }
  S3UrlOptions options = GoodUrl();
  options.bucket = std::string(64, 'a');
  CheckRefused(options, {"g4.bucket", "64", "3 to 63"});
  options.bucket = "with.dot";
  CHECK(S3Urls::Make(options).ok());
  options.virtual_host = true;
  CheckRefused(options, {"g4.bucket", "certificate"});
}

TEST_CASE("a prefix or region that could mean something else is refused") {
  for (const char* prefix : {"/a", "a//b", "a/../b", "./a", "a b", "a?b", "a\nb", "a%41", "\xff"}) {
    S3UrlOptions options = GoodUrl();
    options.prefix = prefix;
    CheckRefused(options, {"g4.prefix"});
  }
  S3UrlOptions options = GoodUrl();
  options.prefix = std::string(513, 'a');
  CheckRefused(options, {"g4.prefix", "513", "512"});
  options.prefix = "a/";
  CHECK(S3Urls::Make(options)->prefix() == "a/");
  for (const char* region : {"", "EU", "eu central", "eu/s3"}) {
    options.region = region;
    CheckRefused(options, {"g4.region"});
  }
}

}  // namespace kvkeep
