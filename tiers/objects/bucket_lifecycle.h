// What a bucket's lifecycle configuration does to the objects below a prefix. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>

namespace kvkeep {

// After how many days the first of them expires, by the rules of GetBucketLifecycleConfiguration;
// nothing: none does by its age, or it is no such document. A rule for some of them counts. One
// that asks for tags or a size does not: kvkeep's objects have no tags, and are of any size.
std::optional<uint32_t> DaysToExpiry(absl::string_view document, absl::string_view prefix);

}  // namespace kvkeep
