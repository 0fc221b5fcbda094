#include "tiers/objects/s3_answer.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

using enum ObjectOutcome;

constexpr size_t kMaxErrorBodyBytes = 64 * 1024;
constexpr size_t kMaxCodeBytes = 64, kMaxMessageBytes = 256;
constexpr size_t kMaxETagBytes = 128;
constexpr std::chrono::seconds kLongestRetryAfter{24 * 3600};

std::string Shown(absl::string_view text, size_t max_bytes) {
  std::string shown(text.substr(0, max_bytes));
  std::replace_if(shown.begin(), shown.end(),
                  [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return shown;
}

// Outcomes of codes, whatever the status beside them is.
constexpr std::pair<absl::string_view, ObjectOutcome> kCodes[] = {
    {"BadDigest", kBroken},  // harmed on its way
    {"IncompleteBody", kBroken},
    {"InternalError", kBroken},
    {"RequestTimeout", kBroken},  // our body stood still: the connection is gone, nobody is busy
    {"XAmzContentChecksumMismatch", kBroken},
    {"XAmzContentSHA256Mismatch", kBroken},

    {"BandwidthLimitExceeded", kThrottled},
    {"RequestLimitExceeded", kThrottled},
    {"ServerBusy", kThrottled},
    {"ServiceUnavailable", kThrottled},
    {"SlowDown", kThrottled},
    {"SlowDownRead", kThrottled},
    {"SlowDownWrite", kThrottled},
    {"Throttling", kThrottled},
    {"ThrottlingException", kThrottled},
    {"TooManyRequests", kThrottled},

    {"ExpiredToken", kDenied},
    {"InvalidAccessKeyId", kDenied},  // rotated keys, whose end nobody announced
    {"InvalidToken", kDenied},
    {"TokenRefreshRequired", kDenied},
    {"XAdminUserNotFound", kDenied},
    {"RequestTimeTooSkewed", kSkewed},

    {"InsufficientStorage", kFull},
    {"QuotaExceeded", kFull},
    {"XMinioAdminBucketQuotaExceeded", kFull},
    {"XMinioStorageFull", kFull},

    {"ConditionalRequestConflict", kConflict},
    {"OperationAborted", kConflict},
    {"InvalidRange", kShort},
    {"NotImplemented", kUnsupported},
    {"EntityTooLarge", kRefused},
    {"KeyTooLongError", kRefused},
    {"MethodNotAllowed", kRefused},

    {"AccessDenied", kMisconfigured},
    {"AuthorizationHeaderMalformed", kMisconfigured},  // another region
    {"NoSuchBucket", kMisconfigured},
    {"SignatureDoesNotMatch", kMisconfigured},
};

ObjectOutcome JudgeStatus(int status) {
  switch (status) {
    case 408: return kBroken;
    case 409: return kConflict;
    case 413: return kRefused;
    case 416: return kShort;
    case 429: return kThrottled;
    case 501: return kUnsupported;
    case 503: return kThrottled;
    case 507: return kFull;
    default: break;
  }
  // 3xx: the bucket is elsewhere. 1xx, or no valid status: nonsense of a server.
  return status >= 300 && status < 500 ? kMisconfigured : kBroken;
}

bool IsSuccess(ObjectVerb verb, int status) {
  switch (verb) {
    case ObjectVerb::kGet: return status == 200 || status == 206;
    case ObjectVerb::kPut: return status == 200 || status == 201 || status == 204;
    case ObjectVerb::kDelete: return status == 200 || status == 202 || status == 204;
    case ObjectVerb::kList: return status == 200;
  }
  return false;
}

bool ParseNumber(absl::string_view text, uint64_t* value) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, value);
}

}  // namespace

ObjectError ParseS3Error(absl::string_view body) {
  if (body.size() > kMaxErrorBodyBytes) return {};
  const absl::StatusOr<XmlElement> root = ParseXml(body);
  if (!root.ok() || root->name != "Error") return {};
  ObjectError error{Shown(root->TextOf("Code"), kMaxCodeBytes),
                    Shown(root->TextOf("Message"), kMaxMessageBytes),
                    Shown(root->TextOf("RequestId"), kMaxCodeBytes)};
  for (const char* name : {"Endpoint", "Region"}) {
    const std::string value = Shown(root->TextOf(name), kMaxMessageBytes);
    if (!value.empty()) absl::StrAppend(&error.message, "; ", name, ": ", value);
  }
  return error;
}

ObjectOutcome Judge(const ObjectQuestion& question, int http_status, absl::string_view code) {
  if (IsSuccess(question.verb, http_status)) return kOk;
  if (http_status == 404 && code == "NoSuchKey") {
    // The object of a deletion is gone; a list is of a bucket, and no object.
    if (question.verb == ObjectVerb::kDelete) return kOk;
    return question.verb == ObjectVerb::kGet ? kAbsent : kMisconfigured;
  }
  if (http_status == 412) {
    if (!question.conditional) return kMisconfigured;
    if (question.verb == ObjectVerb::kPut) return kExists;
    return question.verb == ObjectVerb::kGet ? kChanged : kMisconfigured;
  }
  // A code in the body of a success or a redirect is not an error's.
  if (http_status >= 400 && http_status < 600) {
    for (const auto& [known, outcome] : kCodes) {
      if (code == known) return outcome;
    }
  }
  return JudgeStatus(http_status);
}

absl::string_view AdviceFor(absl::string_view code) {
  static constexpr absl::string_view kElsewhere =
      "set g4.region and g4.url to the bucket's, which the server's words name";
  static constexpr absl::string_view kOtherId =
      "mend the first line of g4.credentials_file, or the source that g4.credentials names";
  static constexpr absl::string_view kNewer =
      "renew what is in g4.credentials_file, or see why the source that g4.credentials names has "
      "no newer keys: these have expired";
  static constexpr std::pair<absl::string_view, absl::string_view> kAdvice[] = {
      {"AccessDenied",
       "let these keys get, put and delete objects below g4.prefix, and list the bucket: without "
       "the last, objects that are absent are denied too"},
      {"AuthorizationHeaderMalformed", "set g4.region to the bucket's"},
      {"HTTP 301", kElsewhere},
      {"HTTP 302", kElsewhere},
      {"HTTP 307", kElsewhere},
      {"HTTP 308", kElsewhere},
      {"PermanentRedirect", kElsewhere},
      {"Redirect", kElsewhere},
      {"TemporaryRedirect", kElsewhere},
      {"NoSuchBucket", "create the bucket, or mend g4.url"},
      {"InvalidAccessKeyId", kOtherId},
      {"XAdminUserNotFound", kOtherId},
      {"SignatureDoesNotMatch",
       "mend the second line of g4.credentials_file, or the source that g4.credentials names"},
      {"NoCredentials",
       "mend the source that g4.credentials names; keys in g4.credentials_file are to be readable "
       "by the daemon alone"},
      {"ExpiredToken", kNewer},
      {"InvalidToken",
       "mend the third line of g4.credentials_file, or the source that g4.credentials names"},
      {"TokenRefreshRequired", kNewer},
      {"RequestTimeTooSkewed", "set this machine's clock, or the server's"},
      {"QuotaExceeded", "raise the bucket's quota, or have old objects deleted"},
      {"XMinioAdminBucketQuotaExceeded", "raise the bucket's quota, or have old objects deleted"},
      {"XMinioStorageFull", "add room to the object store, or have old objects deleted"},
      {"InsufficientStorage", "add room to the object store, or have old objects deleted"},
  };
  for (const auto& [known, advice] : kAdvice) {
    if (code == known) return advice;
  }
  return {};
}

Consequence ConsequenceOf(ObjectOutcome outcome) {
  switch (outcome) {
    case kOk:
    case kAbsent:
    case kExists:
    case kChanged:
    case kShort:
    case kUnsupported:
    case kRefused:
    case kConflict: return {.serves = true};
    case kThrottled: return {.again = true, .slows = true};
    case kFull: return {.serves = true};
    case kDenied: return {.renews = true};
    case kSkewed: return {.renews = true};
    case kMisconfigured: return {.opens = true};
    case kBroken: return {.again = true, .fails = true};
    case kLate: return {.fails = true};
    case kCancelled: return {};
  }
  KVKEEP_CHECK(false);
}

std::optional<ContentRange> ParseContentRange(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "bytes ")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2) return std::nullopt;
  const std::vector<absl::string_view> ends = absl::StrSplit(parts[0], '-');
  ContentRange range;
  if (ends.size() != 2 || !ParseNumber(ends[0], &range.first) ||
      !ParseNumber(ends[1], &range.last) || range.last < range.first) {
    return std::nullopt;
  }
  if (parts[1] == "*") return range;
  uint64_t total = 0;
  if (!ParseNumber(parts[1], &total) || range.last >= total) return std::nullopt;
  range.object_bytes = total;
  return range;
}

std::optional<std::chrono::seconds> ParseRetryAfter(absl::string_view text, UnixSeconds now) {
  uint64_t seconds = 0;
  if (ParseNumber(text, &seconds)) {
    return std::min(kLongestRetryAfter,
                    std::chrono::seconds(std::min<uint64_t>(seconds, 1'000'000)));
  }
  const std::optional<UnixSeconds> date = ParseHttpDate(text);
  if (!date.has_value()) return std::nullopt;
  const std::chrono::seconds left(date->value() - now.value());
  return std::clamp(left, std::chrono::seconds(0), kLongestRetryAfter);
}

std::optional<std::string> ParseStrongETag(absl::string_view text) {
  const bool quoted = text.size() >= 2 && text.size() <= kMaxETagBytes && text.front() == '"' &&
                      text.find('"', 1) == text.size() - 1;
  if (!quoted || !std::all_of(text.begin(), text.end(), absl::ascii_isgraph)) return std::nullopt;
  return std::string(text);
}

}  // namespace kvkeep
