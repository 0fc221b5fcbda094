#include "tiers/objects/xml.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <algorithm>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kBlanks = " \t\r\n";
constexpr size_t kMaxEntityBytes = 10;

bool IsXmlChar(uint32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0xd800) ||
         (c >= 0xe000 && c < 0xfffe) || (c >= 0x10000 && c <= 0x10ffff);
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->append({static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))});
  } else if (c < 0x10000) {
    out->append({static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                 static_cast<char>(0x80 | (c & 0x3f))});
  } else {
    out->append({static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3f)),
                 static_cast<char>(0x80 | (c >> 6 & 0x3f)), static_cast<char>(0x80 | (c & 0x3f))});
  }
}

class XmlParser {
 public:
  explicit XmlParser(absl::string_view text) : text_(text), left_(text) {}

  absl::StatusOr<XmlElement> Document() {
    absl::ConsumePrefix(&left_, "\xef\xbb\xbf");
    if (absl::ConsumePrefix(&left_, "<?xml ")) {
      const size_t end = left_.find("?>");
      if (end == absl::string_view::npos) return Wrong("a declaration that does not end");
      left_.remove_prefix(end + 2);
    }
    SkipBlanks();
    XmlElement root;
    KVKEEP_RETURN_IF_ERROR(Element(1, &root));
    SkipBlanks();
    if (!left_.empty()) return Wrong("something behind the root");
    return root;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("no XML that is read here: ", what, " at byte ", text_.size() - left_.size()));
  }

  void SkipBlanks() {
    left_.remove_prefix(std::min(left_.find_first_not_of(kBlanks), left_.size()));
  }

  absl::Status Name(std::string* name) {
    size_t size = 0;
    while (size < left_.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(left_[size])) ||
            absl::StrContains("_-.:", left_.substr(size, 1)))) {
      ++size;
    }
    if (size == 0 || absl::ascii_isdigit(static_cast<unsigned char>(left_[0])) ||
        absl::StrContains("-.", left_.substr(0, 1))) {
      return Wrong("no name");
    }
    *name = std::string(left_.substr(0, size));
    left_.remove_prefix(size);
    return absl::OkStatus();
  }

  // Skips attributes behind a tag's name, up to the tag's end. Sets whether that is "/>".
  absl::Status Attributes(bool* empty) {
    for (;;) {
      const size_t before = left_.size();
      SkipBlanks();
      *empty = absl::ConsumePrefix(&left_, "/>");
      if (*empty || absl::ConsumePrefix(&left_, ">")) return absl::OkStatus();
      if (left_.size() == before) return Wrong("a tag that does not end");
      std::string ignored;
      KVKEEP_RETURN_IF_ERROR(Name(&ignored));
      SkipBlanks();
      if (!absl::ConsumePrefix(&left_, "=")) return Wrong("an attribute without a value");
      SkipBlanks();
      const char quote = left_.empty() ? '\0' : left_[0];
      const size_t end = left_.find(quote, 1);
      if ((quote != '"' && quote != '\'') || end == absl::string_view::npos ||
          absl::StrContains(left_.substr(0, end), "<")) {
        return Wrong("a value without quotes");
      }
      left_.remove_prefix(end + 1);
    }
  }

  absl::Status Reference(std::string* out) {
    const size_t end = left_.substr(0, kMaxEntityBytes).find(';');
    if (end == absl::string_view::npos) return Wrong("an '&' that begins no entity");
    absl::string_view name = left_.substr(0, end);
    uint32_t c = 0;
    if (absl::ConsumePrefix(&name, "#x")) {
      const bool digits = std::all_of(name.begin(), name.end(), absl::ascii_isxdigit);
      if (!digits || !absl::SimpleHexAtoi(name, &c)) c = 0;
    } else if (absl::ConsumePrefix(&name, "#")) {
      const bool digits = std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
      if (!digits || !absl::SimpleAtoi(name, &c)) c = 0;
    } else {
      c = name == "lt" ? '<' : name == "gt" ? '>' : name == "amp" ? '&' : name == "quot" ? '"'
          : name == "apos" ? '\'' : 0;
    }
    if (!IsXmlChar(c)) return Wrong("an entity that is unknown");
    AppendUtf8(c, out);
    left_.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  // Text up to the next tag.
  absl::Status Text(std::string* out) {
    while (!left_.empty() && left_[0] != '<') {
      if (absl::ConsumePrefix(&left_, "&")) {
        KVKEEP_RETURN_IF_ERROR(Reference(out));
        continue;
      }
      const size_t size = std::min(left_.find_first_of("<&"), left_.size());
      const absl::string_view run = left_.substr(0, size);
      const bool allowed = std::all_of(run.begin(), run.end(), [](char c) {
        return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\r' || c == '\n';
      });
      if (!allowed) return Wrong("a control character");
      absl::StrAppend(out, run);
      left_.remove_prefix(size);
    }
    return absl::OkStatus();
  }

  absl::Status Element(size_t depth, XmlElement* element) {
    if (depth > kMaxXmlDepth) return Wrong("elements deeper than 8");
    if (++elements_ > kMaxXmlElements) return Wrong("more than 20,000 elements");
    if (!absl::ConsumePrefix(&left_, "<")) return Wrong("no element");
    KVKEEP_RETURN_IF_ERROR(Name(&element->name));
    bool empty = false;
    KVKEEP_RETURN_IF_ERROR(Attributes(&empty));
    if (empty) return absl::OkStatus();
    for (;;) {
      KVKEEP_RETURN_IF_ERROR(Text(&element->text));
      const bool ends = absl::ConsumePrefix(&left_, "</");
      if ((!ends || !element->children.empty()) &&
          absl::string_view(element->text).find_first_not_of(kBlanks) != absl::string_view::npos) {
        return Wrong("text beside elements");
      }
      if (ends) break;
      element->text.clear();
      KVKEEP_RETURN_IF_ERROR(Element(depth + 1, &element->children.emplace_back()));
    }
    if (!element->children.empty()) element->text.clear();  // blanks between them are no text
    if (!absl::ConsumePrefix(&left_, element->name)) return Wrong("an end tag of another element");
    SkipBlanks();
    if (!absl::ConsumePrefix(&left_, ">")) return Wrong("an end tag that does not end");
    return absl::OkStatus();
  }

  const absl::string_view text_;
  absl::string_view left_;
  size_t elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::Child(absl::string_view child) const {
  const auto at = std::find_if(children.begin(), children.end(),
                               [&](const XmlElement& element) { return element.name == child; });
  return at == children.end() ? nullptr : &*at;
}

absl::string_view XmlElement::TextOf(absl::string_view child) const {
  const XmlElement* const element = Child(child);
  return element == nullptr ? absl::string_view() : absl::string_view(element->text);
}

absl::StatusOr<XmlElement> ParseXml(absl::string_view text) {
  if (text.size() > kMaxXmlBytes) {
    return absl::InvalidArgumentError(absl::StrCat("no XML that is read here: ", text.size(),
                                                   " bytes; the most are ", kMaxXmlBytes));
  }
  return XmlParser(text).Document();
}

}  // namespace kvkeep
