// WhyGpusAreHidden: tells why a process on a machine with NVIDIA GPUs cannot reach them: the
// sandbox of its service, or its container. The driver then says only that there is no device.
#pragma once

#include <string>

namespace kvkeep {

// Returns the reason; empty: nothing is hidden, or it cannot be known. `root` is a prefix of /proc
// and /dev.
std::string WhyGpusAreHidden(const std::string& root);

}  // namespace kvkeep
