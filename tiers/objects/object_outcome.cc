#include "tiers/objects/object_outcome.h"

#include <absl/strings/str_cat.h>

#include <array>

#include "tiers/base/check.h"

namespace kvkeep {

absl::string_view NameOf(ObjectOutcome outcome) {
  static constexpr std::array<absl::string_view, kObjectOutcomes> kNames = {
      "ok",          "absent",  "exists",    "changed", "short",  "conflict",
      "unsupported", "refused", "throttled", "full",    "denied", "skewed",
      "misconfigured", "broken", "late",     "cancelled"};
  KVKEEP_CHECK(static_cast<size_t>(outcome) < kNames.size());
  return kNames[static_cast<size_t>(outcome)];
}

absl::Status ToStatus(ObjectOutcome outcome, absl::string_view what, const ObjectError& error) {
  using enum ObjectOutcome;
  std::string text = absl::StrCat(what, ": ", NameOf(outcome));
  if (!error.code.empty()) absl::StrAppend(&text, ", ", error.code);
  if (!error.message.empty()) absl::StrAppend(&text, ": ", error.message);
  if (!error.request_id.empty()) absl::StrAppend(&text, " (request ", error.request_id, ")");
  switch (outcome) {
    case kOk:
    case kExists: return absl::OkStatus();
    case kAbsent: return absl::NotFoundError(text);
    case kChanged:
    case kShort: return absl::DataLossError(text);
    case kCancelled: return absl::CancelledError(text);
    case kMisconfigured: return absl::FailedPreconditionError(text);
    case kUnsupported: return absl::UnimplementedError(text);
    case kRefused: return absl::InvalidArgumentError(text);
    case kFull: return absl::ResourceExhaustedError(text);
    case kConflict:
    case kThrottled:
    case kDenied:
    case kSkewed:
    case kBroken:
    case kLate: return absl::UnavailableError(text);
  }
  KVKEEP_CHECK(false);
}

}  // namespace kvkeep
