// ParsePageRequest: the head of a request of HTTP/1.0 or 1.1, as far as pages need it.
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>
#include <optional>
#include <string>

namespace kvkeep {

inline constexpr size_t kMaxHttpHeadBytes = 8192;  // of a request: its line and its headers

struct PageRequest {
  std::string method;  // as it came: "GET"
  std::string path;    // without its query
  // The token of an Authorization header "Bearer TOKEN"; empty: another kind of credentials.
  std::optional<std::string> token;
};

// Parses all bytes up to the empty line that ends the headers. Returns none if they are not a
// request, or have more than one Authorization.
std::optional<PageRequest> ParsePageRequest(absl::string_view head);

}  // namespace kvkeep
