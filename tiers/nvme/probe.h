// ProbeDevice: finds out, by a write, whether the file system of a device's directory takes writes
// now.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace kvkeep {

// Makes a file in the directory, with room for what an index writes when it is opened; writes a
// page, syncs it, reads it back past the page cache and removes the file. Blocks as long as the
// drive does. OK; NotFound: no device is in the directory; else what failed, by posix_file.h's
// codes, with the path.
absl::Status ProbeDevice(const std::string& dir);

}  // namespace kvkeep
