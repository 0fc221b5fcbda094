// What somebody may have meant by a key that does not exist.
#pragma once

#include <absl/strings/string_view.h>

#include <string>

namespace kvkeep {

// Insertions, deletions, replacements and swaps of neighbours between the two. Takes time in the
// product of the lengths: for keys, not for texts.
size_t EditDistance(absl::string_view a, absl::string_view b);

// For an unknown `name` under `parent` ("" at the top, "g2", "g3.paths[]"): ", did you mean
// 'g3.paths'?", or how to write a path that was taken for a name, or "; known here: a, b".
std::string SuggestKey(absl::string_view parent, absl::string_view name);

}  // namespace kvkeep
