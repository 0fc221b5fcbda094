// Whether bytes are UTF-8, as a string of protobuf and of JSON must be: shortest forms only, no
// surrogates, nothing above U+10FFFF. A NUL is a character.
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>

namespace kvkeep {

// How many bytes of it, from the first one on, are whole characters of UTF-8: all, if it is that.
size_t Utf8Bytes(absl::string_view text);

inline bool IsUtf8(absl::string_view text) { return Utf8Bytes(text) == text.size(); }

}  // namespace kvkeep
