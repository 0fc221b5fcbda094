// ErrnoStatus: maps each errno of an I/O operation to its meaning for kvkeep.
//
//   DataLoss            the medium or the file system lost or cannot give the bytes
//   ResourceExhausted   no space, quota, file-size limit, kernel memory
//   FailedPrecondition  read-only or not permitted
//   Unavailable         the device is gone or does not answer, or the operation was given up
//   Internal            our bug: bad address, bad alignment, bad descriptor; or an errno not listed
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace kvkeep {

// The status code for `error` (a positive errno).
absl::StatusCode ErrnoCode(int error);

// "<what>: <errno's text> (errno N)". `what` names operation, path and place.
absl::Status ErrnoStatus(int error, absl::string_view what);

// Returns whether such a status says that the kernel was short of memory or requests. This passes,
// and says nothing about the device.
bool IsHostShort(const absl::Status& status);

}  // namespace kvkeep
