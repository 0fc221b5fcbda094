// Reads what a bucket's lifecycle configuration does to the objects below a prefix: which expire,
// and which are moved to another class. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

namespace kvkeep {

struct BucketExpiry {
  // Days after which the first objects expire; none: none expires by its age. A rule for some
  // objects, by name or size, counts. A rule that asks for tags does not: kvkeep sets none.
  std::optional<uint32_t> days;
  bool unclear = false;  // there are rules of another form, or at a date
  // The class that a rule moves some objects to; among several, one that answers no reads.
  std::string moved_to;
  bool archived = false;  // that class answers no reads (GLACIER, DEEP_ARCHIVE)
};

// Reads the answer to GetBucketLifecycleConfiguration; nullopt: it is another document.
std::optional<BucketExpiry> ReadExpiry(absl::string_view document, absl::string_view prefix);

}  // namespace kvkeep
