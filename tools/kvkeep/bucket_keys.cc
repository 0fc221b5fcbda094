#include "tools/kvkeep/bucket_keys.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "tiers/base/clock.h"

namespace kvkeep::tools {

void AddBucketOptions(CLI::App& verb, BucketAsked& asked) {
  verb.add_option("--prefix", asked.urls.prefix, "prefix of the names of all objects");
  verb.add_option("--region", asked.urls.region, "region that requests are signed for")
      ->capture_default_str();
  verb.add_flag("--virtual-host", asked.urls.virtual_host,
                "put the bucket in the host's name, as AWS requires");
  verb.add_option("--credentials", asked.keys.credentials, "source of the keys")
      ->check(CLI::IsMember(
          {"auto", "file", "process", "environment", "web_identity", "container", "instance"}))
      ->capture_default_str();
  verb.add_option(
      "--credentials-file", asked.keys.file,
      "two lines, key id and secret, readable by you alone; by default the environment's "
      "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the source of --credentials");
  verb.add_option("--credential-process", asked.keys.process,
                  "program that prints the keys, like g4.credential_process");
  verb.add_option("--ca-file", asked.http.ca_file,
                  "PEM file of the server's CA; by default the system's CAs");
  verb.add_option("--proxy", asked.http.proxy, "http://host:port, as g4.proxy");
}

absl::StatusOr<SharedS3Keys> FindBucketKeys(const S3KeyOptions& options,
                                            const std::string& region,
                                            const CurlEngineOptions& http) {
  absl::StatusOr<std::unique_ptr<S3KeySource>> source = MakeS3KeySource(
      options, region, http, [](const char* name) { return std::getenv(name); }, RealClock());
  if (!source.ok()) return source.status();
  absl::StatusOr<S3Keys> keys = absl::UnavailableError("the keys did not come");
  (*source)->Fetch([&keys](absl::StatusOr<S3Keys> told) { keys = std::move(told); });
  if (!keys.ok()) return keys.status();
  return std::make_shared<const S3Keys>(*std::move(keys));
}

}  // namespace kvkeep::tools
