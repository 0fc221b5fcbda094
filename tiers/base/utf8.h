// Checks UTF-8, as strings of protobuf and JSON must be: shortest forms only, no surrogates,
// nothing above U+10FFFF. A NUL is a character.
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>

namespace kvkeep {

// Returns the length of the longest prefix of `text` that is valid UTF-8.
size_t Utf8Bytes(absl::string_view text);

inline bool IsUtf8(absl::string_view text) { return Utf8Bytes(text) == text.size(); }

}  // namespace kvkeep
