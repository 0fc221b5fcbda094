// The check at the end of every test here.
#pragma once

#include <absl/status/status.h>

#include <cstddef>

namespace kvkeep {

// Descriptors that this process has open.
size_t OpenDescriptors();

// One line that says something.
bool IsOneLine(const absl::Status& status);

}  // namespace kvkeep
