// URI encoding as S3 wants it signed: every byte but A-Z a-z 0-9 - . _ ~ is %XX, in capitals.
// Callers encode once, and sign and send the same text. Nothing is normalised: an object's name may
// hold "//" or "..". Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <utility>
#include <vector>

namespace kvkeep {

// Names and values before they are encoded.
using UriQuery = std::vector<std::pair<std::string, std::string>>;

// All bytes, '/' too: a name or a value of a query.
std::string EncodeUriPart(absl::string_view text);
// A path: '/' stays as it is.
std::string EncodeUriPath(absl::string_view path);
// "a=1&b=", sorted by encoded name, then value; empty for none.
std::string EncodeUriQuery(const UriQuery& query);

}  // namespace kvkeep
