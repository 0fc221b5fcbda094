// Directories that the daemon trusts: only its own user may put anything into them. Otherwise files
// read back from there could be anybody's, and a link could lead anywhere.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace kvkeep {

// FailedPrecondition when the open directory is another user's, or others may write to it: then its
// contents cannot be trusted, and the start ends. `path` is for the message.
absl::Status CheckOwnDirectory(int directory, absl::string_view path);

// Sets mode 0700 if others have any right, so that they may not look into it either. Returns the
// system's error, if any.
absl::Status KeepOthersOut(int directory, absl::string_view path);

}  // namespace kvkeep
