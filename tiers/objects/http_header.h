// HttpHeader: a line of a request's or an answer's head. A plain value.
#pragma once

#include <absl/strings/match.h>
#include <absl/strings/string_view.h>

#include <string>
#include <vector>

namespace kvkeep {

struct HttpHeader {
  std::string name;  // in any case
  std::string value;

  bool operator==(const HttpHeader&) const = default;
};
using HttpHeaders = std::vector<HttpHeader>;

// Returns the value of the first header of that name, in any case; empty when there is none.
inline absl::string_view FindHeader(const HttpHeaders& headers, absl::string_view name) {
  for (const HttpHeader& header : headers) {
    if (absl::EqualsIgnoreCase(header.name, name)) return header.value;
  }
  return {};
}

}  // namespace kvkeep
