// What a bucket's lifecycle configuration does to the objects below a prefix. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>

namespace kvkeep {

struct BucketExpiry {
  // After how many days the first of them expires; none: none does by its age. A rule for some of
  // them counts, by their name or size. One that asks for tags does not: kvkeep sets none.
  std::optional<uint32_t> days;
  bool unclear = false;  // there are rules of another form, or at a date
};

// Of the answer to GetBucketLifecycleConfiguration; nothing: it is no such document.
std::optional<BucketExpiry> ReadExpiry(absl::string_view document, absl::string_view prefix);

}  // namespace kvkeep
