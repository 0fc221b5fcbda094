#include "tools/kvkeep/bucket_keys.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "tiers/objects/s3_key_source.h"

namespace kvkeep::tools {

void AddBucketOptions(CLI::App& verb, BucketAsked& asked) {
  verb.add_option("--prefix", asked.urls.prefix, "before the names of all objects");
  verb.add_option("--region", asked.urls.region, "what requests are signed for")
      ->capture_default_str();
  verb.add_flag("--virtual-host", asked.urls.virtual_host,
                "the bucket in the host's name, as AWS wants it");
  verb.add_option("--credentials-file", asked.credentials_file,
                  "two lines, key id and secret, readable by you alone; else the environment's "
                  "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  verb.add_option("--ca-file", asked.ca_file, "who certified the server; else the system's");
}

absl::StatusOr<SharedS3Keys> FindBucketKeys(const std::string& file) {
  absl::StatusOr<std::unique_ptr<S3KeySource>> source =
      MakeS3KeySource(file, [](const char* name) { return std::getenv(name); });
  if (!source.ok()) return source.status();
  absl::StatusOr<S3Keys> keys = absl::UnavailableError("the keys did not come");
  // Of a file and of the environment: inside the call.
  (*source)->Fetch([&keys](absl::StatusOr<S3Keys> told) { keys = std::move(told); });
  if (!keys.ok()) return keys.status();
  return std::make_shared<const S3Keys>(*std::move(keys));
}

}  // namespace kvkeep::tools
