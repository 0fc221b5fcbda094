// How a request to an object store ended: one outcome for each request, whatever the store is, and
// the store's error. Pure functions.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <cstddef>
#include <cstdint>
#include <string>

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
  kDenied,         // the keys have expired, or are unknown
  kSkewed,         // this machine's clock, or the server's, is wrong
  kMisconfigured,  // no request will be taken until somebody changes something
  kBroken,         // connection or server failed
  kLate,           // no answer in time
  kCancelled,
};
inline constexpr size_t kObjectOutcomes = 16;

// Returns the outcome's name in metrics and logs.
absl::string_view NameOf(ObjectOutcome outcome);

// The store's own words, cut and made printable. Empty fields: it said nothing.
struct ObjectError {
  std::string code, message, request_id;

  bool operator==(const ObjectError&) const = default;
};

// Returns the outcome as a status of the source's seam (tiers/remote/remote_source.h): OK for kOk
// and kExists; NotFound; DataLoss for an image that is not whole; Unavailable for trouble that
// passes by itself; other codes are misconfiguration. The message has the code and the store's
// words.
absl::Status ToStatus(ObjectOutcome outcome, absl::string_view what, const ObjectError& error);

}  // namespace kvkeep
