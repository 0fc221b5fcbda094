// SweepImages: deletes the images of a bucket or directory that are older than their lifetime, for
// servers that have no lifecycle rules. Room there is bounded by age alone: what was used meanwhile
// was written anew.
//
// It may run anywhere, twice at once too, and be killed at any time. It touches nothing but names
// of images (object_name.h): the bucket may be others' as well. A daemon that reads an image which
// goes meanwhile has a miss. Blocks until it is through.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

struct ImageSweepOptions {
  // Shorter ones are refused: clocks of servers differ by minutes.
  static constexpr std::chrono::hours kShortestLifetime{1};

  std::chrono::seconds lifetime{0};
  uint32_t deletions_per_second = 100;  // 1 to 10,000
  uint32_t at_once = 16;                // deletions, 1 to 256
  // After so many failed deletions in a row it gives up.
  uint32_t most_failures = 20;
  bool dry_run = false;  // counts, deletes nothing
  std::chrono::milliseconds each_within{30'000};

  absl::Status Validate() const;
};

struct ImageSweepCounts {
  uint64_t pages = 0;
  uint64_t kept = 0, kept_bytes = 0;        // images that are young enough
  uint64_t deleted = 0, deleted_bytes = 0;  // dry run: that would be
  uint64_t failed = 0;                      // deletions
  uint64_t others = 0;                      // objects that are no image's, left alone
  std::string last_error;                   // of a deletion, as the store said it
};

// `each_page` is told how far it is. Unavailable: the store cannot be listed, or takes no
// deletions; what `each_page` was told holds. `store` and `clock` outlive the call.
absl::StatusOr<ImageSweepCounts> SweepImages(
    ObjectStore& store, Clock* clock, const ImageSweepOptions& options,
    absl::FunctionRef<void(const ImageSweepCounts&)> each_page);

}  // namespace kvkeep
