// SweepImages: deletes the images of a bucket or directory that are older than their lifetime, for
// servers that have no lifecycle rules. This bounds the room by the age of images since they were
// first written. An image that is still used is missed once, and may be written again.
//
// An object that the sweep puts, and deletes again, tells what time it is at the store. A bucket
// and an NFS server date by their own clock, so there a machine whose clock is wrong does no harm.
// CephFS and Lustre date a file by the machine that writes it: a sweep from one whose clock is
// ahead, or of images by one whose clock is behind, deletes too early by as much. An image without
// a time stays.
//
// It may run anywhere, be killed at any time, and run twice at once: an image that is written anew
// between one sweep's list and its deletion goes, too. It touches nothing but names of images
// (object_name.h): the bucket may be others' as well. Blocks until it is through.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/base/random.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

struct ImageSweepOptions {
  static constexpr std::chrono::hours kShortestLifetime{1};

  std::chrono::seconds lifetime{0};
  uint32_t deletions_per_second = 100;  // 1 to 10,000
  uint32_t at_once = 16;                // deletions, 1 to 256
  // Number of failed deletions in a row after which it gives up.
  uint32_t most_failures = 20;
  bool dry_run = false;  // counts, deletes nothing
  std::chrono::milliseconds each_within{30'000};  // but for lists, which may look through a shard
  std::chrono::milliseconds list_within{600'000};

  absl::Status Validate() const;
};

struct ImageSweepCounts {
  uint64_t pages = 0;  // at least one a shard of names
  uint64_t kept = 0, kept_bytes = 0;        // images that are young enough
  uint64_t deleted = 0, deleted_bytes = 0;  // dry run: that would be
  uint64_t failed = 0;                      // deletions
  uint64_t others = 0;                      // objects that are no image's, left alone
  std::string last_error;                   // of a deletion, as the store said it
};

// `each_page` is told how far it is. Unavailable: the store cannot be listed, tells no time, or
// takes no deletions. DataLoss: a list does not go on. After an error, the counts told to
// `each_page` hold. All pointers outlive the call.
absl::StatusOr<ImageSweepCounts> SweepImages(
    ObjectStore& store, Clock* clock, RandomSource* random, const ImageSweepOptions& options,
    absl::FunctionRef<void(const ImageSweepCounts&)> each_page);

}  // namespace kvkeep
