// Checks of these tests: no descriptor is left open, and an error is one line.
#pragma once

#include <absl/status/status.h>

#include <cstddef>

namespace kvkeep {

// Returns how many descriptors this process has open.
size_t OpenDescriptors();

// Checks that it is one line with text.
bool IsOneLine(const absl::Status& status);

}  // namespace kvkeep
