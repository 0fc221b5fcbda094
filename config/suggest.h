// Suggests the key that was meant by one that does not exist.
#pragma once

#include <absl/strings/string_view.h>

#include <span>
#include <string>

namespace kvkeep {

// Insertions, deletions, replacements and swaps of neighbours between the two. Takes time in the
// product of the lengths: for keys, not for texts.
size_t EditDistance(absl::string_view a, absl::string_view b);

// For an unknown `name` under `parent` ("" at the top, "g2", "g3.paths[]"): ": what to do" for one
// that is gone, ", did you mean 'g3.paths'?", or how to write a path that was taken for a name, or
// "; known here: a, b".
std::string SuggestKey(absl::string_view parent, absl::string_view name);

// A key that there was once.
struct GoneKey {
  const char* path;
  const char* to_do;  // for messages
};
std::span<const GoneKey> GoneKeys();
// ": what to do" for a path of one of them, else empty.
std::string WhatToDoIfGone(absl::string_view path);

}  // namespace kvkeep
