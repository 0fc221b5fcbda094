#include "server/supervision/page_request.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include <vector>

namespace kvkeep {

std::optional<PageRequest> ParsePageRequest(absl::string_view head) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || words[0].empty() || !absl::StartsWith(words[1], "/")) return {};
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return {};
  PageRequest request{.method = std::string(words[0]),
                      .path = std::string(words[1].substr(0, words[1].find('?'))),
                      .token = std::nullopt};
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == absl::string_view::npos || colon == 0) return {};
    if (!absl::EqualsIgnoreCase(lines[i].substr(0, colon), "authorization")) continue;
    if (request.token.has_value()) return {};
    absl::string_view value = absl::StripAsciiWhitespace(lines[i].substr(colon + 1));
    const bool bearer = absl::StartsWithIgnoreCase(value, "bearer ");
    request.token = std::string(bearer ? absl::StripAsciiWhitespace(value.substr(7)) : "");
  }
  return request;
}

}  // namespace kvkeep
