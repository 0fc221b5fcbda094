// XmlElement: a document of elements and text, which is all that S3 sends as XML.
//
// Strict, as it reads what any server may send: one root, matching tags, the five entities and
// character references; attributes are skipped. Document types, processing instructions, comments
// and CDATA are refused, so nothing in it can name a file or grow. Limits on bytes, depth and
// elements. Pure functions.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstddef>
#include <string>
#include <vector>

namespace kvkeep {

struct XmlElement {
  std::string name;
  std::string text;  // decoded; blank where there are children
  std::vector<XmlElement> children;

  // The first child of that name; null when there is none.
  const XmlElement* Child(absl::string_view child) const;
  // Returns the text of that child; empty when there is none.
  absl::string_view TextOf(absl::string_view child) const;
};

inline constexpr size_t kMaxXmlBytes = 8 * 1024 * 1024;
inline constexpr size_t kMaxXmlDepth = 8;
inline constexpr size_t kMaxXmlElements = 20'000;

// InvalidArgument says what is wrong and at which byte.
absl::StatusOr<XmlElement> ParseXml(absl::string_view text);

}  // namespace kvkeep
