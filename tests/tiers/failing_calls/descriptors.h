// The check at the end of every test here.
#pragma once

#include <absl/status/status.h>

#include <cstddef>

namespace kvkeep {

// Returns the descriptors that this process has open.
size_t OpenDescriptors();

// Checks that it is one line with text.
bool IsOneLine(const absl::Status& status);

}  // namespace kvkeep
