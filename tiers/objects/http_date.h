// Wall-clock times as HTTP and S3 write them. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tiers/base/strong_int.h"

namespace kvkeep {

// Seconds since 1970. Only for signatures and times that servers tell: nothing is timed by it.
using UnixSeconds = StrongInt<struct UnixSecondsTag, int64_t>;

// "20130524T000000Z". REQUIRES: years 1 to 9999.
std::string FormatAmzTime(UnixSeconds at);
// "Fri, 24 May 2013 00:00:00 GMT", the one form that servers may send (RFC 9110); none for another.
std::optional<UnixSeconds> ParseHttpDate(absl::string_view text);
// "2013-05-24T00:00:00.000Z", as XML and JSON answers have it, with or without a fraction.
std::optional<UnixSeconds> ParseIsoTime(absl::string_view text);

}  // namespace kvkeep
