#include "tiers/objects/bucket_lifecycle.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>

#include <algorithm>

#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

// The objects that a rule is for.
struct Filter {
  absl::string_view prefix;
  bool tagged = false, unclear = false;
};

void ReadFilter(const XmlElement& from, Filter* filter) {
  for (const XmlElement& condition : from.children) {
    if (condition.name == "Prefix") {
      filter->prefix = condition.text;
    } else if (condition.name == "Tag") {
      filter->tagged = true;
    } else if (condition.name == "And") {
      ReadFilter(condition, filter);
    } else if (!absl::StartsWith(condition.name, "ObjectSize")) {
      filter->unclear = true;
    }
  }
}

Filter FilterOf(const XmlElement& rule) {
  Filter filter;
  const XmlElement* const element = rule.Child("Filter");
  if (element == nullptr) {
    filter.prefix = rule.TextOf("Prefix");  // as rules were written before 2016
  } else {
    ReadFilter(*element, &filter);
  }
  return filter;
}

// Reads when a rule moves images to another class; transitions of old versions do not matter.
void ReadTransitions(const XmlElement& rule, BucketExpiry* expiry) {
  for (const XmlElement& transition : rule.children) {
    if (transition.name != "Transition" || expiry->archived) continue;
    const absl::string_view to = transition.TextOf("StorageClass");
    expiry->moved_to = to.empty() ? "another class" : std::string(to);
    expiry->archived = to == "GLACIER" || to == "DEEP_ARCHIVE";
  }
}

void ReadRule(const XmlElement& rule, absl::string_view prefix, BucketExpiry* expiry) {
  if (rule.TextOf("Status") == "Disabled") return;
  const Filter filter = FilterOf(rule);
  const bool ours =
      absl::StartsWith(prefix, filter.prefix) || absl::StartsWith(filter.prefix, prefix);
  if (!ours || filter.tagged) return;
  ReadTransitions(rule, expiry);
  const XmlElement* const expiration = rule.Child("Expiration");
  if (rule.TextOf("Status") != "Enabled" || filter.unclear || rule.Child("Action") != nullptr) {
    expiry->unclear = true;
  } else if (expiration != nullptr && expiration->Child("ExpiredObjectDeleteMarker") == nullptr) {
    uint32_t days = 0;
    if (absl::SimpleAtoi(expiration->TextOf("Days"), &days)) {
      expiry->days = std::min(expiry->days.value_or(days), days);
    } else {
      expiry->unclear = true;
    }
  }
}

}  // namespace

std::optional<BucketExpiry> ReadExpiry(absl::string_view document, absl::string_view prefix) {
  const absl::StatusOr<XmlElement> root = ParseXml(document);
  if (!root.ok() || root->name != "LifecycleConfiguration") return std::nullopt;
  BucketExpiry expiry;
  for (const XmlElement& rule : root->children) {
    if (rule.name == "Rule") ReadRule(rule, prefix, &expiry);
  }
  return expiry;
}

}  // namespace kvkeep
