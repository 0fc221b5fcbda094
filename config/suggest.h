// Suggests the key that an unknown one was meant to be.
#pragma once

#include <absl/strings/string_view.h>

#include <span>
#include <string>

namespace kvkeep {

// Returns the number of insertions, deletions, replacements and swaps of neighbours between the
// two. Takes time in the product of the lengths: for keys, not for texts.
size_t EditDistance(absl::string_view a, absl::string_view b);

// Returns the advice for an unknown `name` under `parent` ("" at the top, "g2", "g3.paths[]"): ":
// what to do" for a key that is gone, ", did you mean 'g3.paths'?", how to write a path that was
// taken for a name, or "; known here: a, b".
std::string SuggestKey(absl::string_view parent, absl::string_view name);

// A key of an earlier version.
struct GoneKey {
  const char* path;
  const char* to_do;  // for messages
};
std::span<const GoneKey> GoneKeys();
// Returns ": what to do" for the path of a gone key, else an empty text.
std::string WhatToDoIfGone(absl::string_view path);

}  // namespace kvkeep
