#include "tiers/objects/http_date.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <absl/time/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace kvkeep {
namespace {

constexpr std::array<absl::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// Parses a number of exactly `digits` digits, and nothing else.
std::optional<int> Number(absl::string_view text, size_t digits) {
  int value = 0;
  if (text.size() != digits || !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<UnixSeconds> At(std::optional<int> year, std::optional<int> month,
                              std::optional<int> day, absl::string_view clock) {
  const std::vector<absl::string_view> parts = absl::StrSplit(clock, ':');
  if (parts.size() != 3 || !year || !month || !day) return std::nullopt;
  const auto hour = Number(parts[0], 2), minute = Number(parts[1], 2), second = Number(parts[2], 2);
  // 60: a leap second, which is taken for the next minute's first.
  if (!hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 60) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return UnixSeconds(((days * 24 + *hour) * 60 + *minute) * 60 + *second);
}

}  // namespace

std::string FormatAmzTime(UnixSeconds at) {
  return absl::FormatTime("%E4Y%m%dT%H%M%SZ", absl::FromUnixSeconds(at.value()),
                          absl::UTCTimeZone());
}

std::optional<UnixSeconds> ParseHttpDate(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  if (words.size() != 6 || words[0].size() != 4 || words[5] != "GMT") return std::nullopt;
  const auto month = std::find(kMonths.begin(), kMonths.end(), words[2]);
  if (month == kMonths.end()) return std::nullopt;
  return At(Number(words[3], 4), static_cast<int>(month - kMonths.begin()) + 1,
            Number(words[1], 2), words[4]);
}

std::optional<UnixSeconds> ParseIsoTime(absl::string_view text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' ||
      text.back() != 'Z') {
    return std::nullopt;
  }
  const absl::string_view fraction = text.substr(19, text.size() - 20);
  const bool whole = fraction.empty() ||
                     (fraction.size() > 1 && fraction[0] == '.' &&
                      std::all_of(fraction.begin() + 1, fraction.end(), absl::ascii_isdigit));
  if (!whole) return std::nullopt;
  return At(Number(text.substr(0, 4), 4), Number(text.substr(5, 2), 2),
            Number(text.substr(8, 2), 2), text.substr(11, 8));
}

}  // namespace kvkeep
