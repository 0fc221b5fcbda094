// The meaning of a server's answer: one outcome for each answer, and its consequences. Only this
// file knows status numbers and the codes of S3's errors.
//
// An unknown code is judged by its status, with care: only 404 with NoSuchKey says that an object
// is absent (another server, a wrong bucket and wrong keys answer 404 as well). Pure functions;
// texts of servers are cut and made printable before anybody sees them.
#pragma once

#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tiers/objects/http_date.h"
#include "tiers/objects/object_outcome.h"

namespace kvkeep {

enum class ObjectVerb : uint8_t { kGet, kPut, kDelete, kList };

struct ObjectQuestion {
  ObjectVerb verb = ObjectVerb::kGet;
  bool conditional = false;  // with If-None-Match or If-Match
};

// Parses an error's body. A field that the body, or the XML in it, does not have is empty. The
// message ends with the endpoint and region that the body names, as a redirect's does.
ObjectError ParseS3Error(absl::string_view body);

ObjectOutcome Judge(const ObjectQuestion& question, int http_status, absl::string_view code);

// Returns what people have to do about a code; empty: nothing, or not known.
absl::string_view AdviceFor(absl::string_view code);

// The consequences of an outcome, besides the answer to the caller.
struct Consequence {
  bool again = false;      // the request is worth another attempt, later
  bool renews = false;     // with other keys or another clock: once, at once
  bool slows = false;      // window and hold
  bool fails = false;      // counts against the endpoint
  bool opens = false;      // the endpoint's breaker, at once
  bool serves = false;     // the endpoint is well: it answered as it should
};
Consequence ConsequenceOf(ObjectOutcome outcome);

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
