#include "tiers/objects/bucket_lifecycle.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>

#include <algorithm>

#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

// The prefix that a rule is for; nothing: it is for objects that have more than that.
std::optional<absl::string_view> PrefixOf(const XmlElement& rule) {
  const XmlElement* const filter = rule.Child("Filter");
  if (filter == nullptr) return rule.TextOf("Prefix");  // as rules were written before 2016
  if (filter->children.empty()) return "";
  if (filter->children.size() > 1 || filter->children[0].name != "Prefix") return std::nullopt;
  return filter->TextOf("Prefix");
}

}  // namespace

std::optional<uint32_t> DaysToExpiry(absl::string_view document, absl::string_view prefix) {
  const absl::StatusOr<XmlElement> root = ParseXml(document);
  if (!root.ok() || root->name != "LifecycleConfiguration") return std::nullopt;
  std::optional<uint32_t> first;
  for (const XmlElement& rule : root->children) {
    if (rule.name != "Rule" || rule.TextOf("Status") != "Enabled") continue;
    const XmlElement* const expiration = rule.Child("Expiration");
    const auto of = PrefixOf(rule);
    uint32_t days = 0;
    if (expiration == nullptr || !absl::SimpleAtoi(expiration->TextOf("Days"), &days)) continue;
    if (!of.has_value() || (!absl::StartsWith(prefix, *of) && !absl::StartsWith(*of, prefix))) {
      continue;
    }
    first = std::min(first.value_or(days), days);
  }
  return first;
}

}  // namespace kvkeep
