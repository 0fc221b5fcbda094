#include "tools/kvkeep/bucket_keys.h"

#include <cstdlib>
#include <memory>

#include "tiers/objects/s3_key_source.h"

namespace kvkeep::tools {

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
