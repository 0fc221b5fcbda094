// Directories that the daemon trusts: nobody but its own user may put anything into them, else what
// is read back from there could be anybody's, and a link could lead anywhere.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace kvkeep {

// FailedPrecondition when the open directory is another user's, or others may write to it: then it
// is not for us to say what lies there, and the start ends. `path` is for the message.
absl::Status CheckOwnDirectory(int directory, absl::string_view path);

// Mode 0700 from here on: others may not look into it either. The error of the system, if any.
absl::Status KeepOthersOut(int directory, absl::string_view path);

}  // namespace kvkeep
