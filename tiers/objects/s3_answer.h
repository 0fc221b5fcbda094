// What an answer of a server means: one outcome for each, and what follows from it. The one place
// that knows status numbers and the codes of S3's errors.
//
// What is not known is judged by its status, and to the careful side: only 404 with NoSuchKey says
// that an object is absent (another server, a wrong bucket and wrong keys answer 404 as well). Pure
// functions; texts of servers are cut and made printable before anybody sees them.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tiers/objects/http_date.h"

namespace kvkeep {

enum class ObjectOutcome : uint8_t {
  kOk,
  kAbsent,         // there is no such object
  kExists,         // a put that was not to replace anything: it is there already
  kChanged,        // a read that was to be of one version: it is another one now
  kShort,          // it ends before what was asked for
  kConflict,       // another put of it is on its way: later
  kUnsupported,    // this server knows no such request
  kRefused,        // this request will never be taken; others may be
  kThrottled,      // slower
  kFull,           // no room; reads go on
  kDenied,         // the keys have expired
  kSkewed,         // this machine's clock, or the server's, is wrong
  kMisconfigured,  // no request will be taken until somebody changes something
  kBroken,         // connection or server failed
  kLate,           // no answer in time
  kCancelled,
};
inline constexpr size_t kObjectOutcomes = 16;

// In metrics and logs.
absl::string_view NameOf(ObjectOutcome outcome);

enum class ObjectVerb : uint8_t { kGet, kPut, kDelete, kList };

struct ObjectQuestion {
  ObjectVerb verb = ObjectVerb::kGet;
  bool conditional = false;  // with If-None-Match or If-Match
};

// Of an error's body. Empty fields: none, or no XML that says one.
struct S3ErrorText {
  std::string code, message, request_id;

  bool operator==(const S3ErrorText&) const = default;
};
S3ErrorText ParseS3Error(absl::string_view body);

ObjectOutcome Judge(const ObjectQuestion& question, int http_status, absl::string_view code);

// What is done about an outcome, besides telling who asked.
struct Consequence {
  bool again = false;      // the request is worth another attempt, later
  bool renews = false;     // with other keys or another clock: once, at once
  bool slows = false;      // window and hold
  bool fails = false;      // counts against the endpoint
  bool opens = false;      // the endpoint's breaker, at once
  bool serves = false;     // the endpoint is well: it answered as it should
};
Consequence ConsequenceOf(ObjectOutcome outcome);

// As the seam of a source has it (tiers/remote/remote_source.h): OK for kOk and kExists; NotFound;
// DataLoss for what is no whole image; Unavailable for what passes by itself; others are
// misconfiguration. The message has the code and the server's words.
absl::Status ToStatus(ObjectOutcome outcome, absl::string_view what, const S3ErrorText& error);

// ---- headers ------------------------------------------------------------------------------------

struct ContentRange {
  uint64_t first = 0, last = 0;
  std::optional<uint64_t> object_bytes;  // none: the server does not say

  bool operator==(const ContentRange&) const = default;
};
// "bytes 0-4095/1234"; none for anything that cannot be.
std::optional<ContentRange> ParseContentRange(absl::string_view text);
// Seconds, or a date; none for neither. At most a day.
std::optional<std::chrono::seconds> ParseRetryAfter(absl::string_view text, UnixSeconds now);
// Strong, as If-Match takes it, with its quotes; none for another or one of more than 128 bytes.
std::optional<std::string> ParseStrongETag(absl::string_view text);

}  // namespace kvkeep
