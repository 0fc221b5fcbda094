// What a bucket's lifecycle configuration does to the objects below a prefix: which expire, and
// which are moved to another class. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

namespace kvkeep {

struct BucketExpiry {
  // After how many days the first of them expires; none: none does by its age. A rule for some of
  // them counts, by their name or size. One that asks for tags does not: kvkeep sets none.
  std::optional<uint32_t> days;
  bool unclear = false;  // there are rules of another form, or at a date
  // The class that a rule moves some of them to; of several, one that answers no reads.
  std::string moved_to;
  bool archived = false;  // that class answers no reads (GLACIER, DEEP_ARCHIVE)
};

// Of the answer to GetBucketLifecycleConfiguration; nothing: it is no such document.
std::optional<BucketExpiry> ReadExpiry(absl::string_view document, absl::string_view prefix);

}  // namespace kvkeep
