// WhyGpusAreHidden: of a machine that has NVIDIA GPUs, and a process that is not let near them, by
// the sandbox of its service or by its container. The driver then says only that there is no
// device.
#pragma once

#include <string>

namespace kvkeep {

// Empty: nothing is hidden, or nobody can know. `root` stands before /proc and /dev.
std::string WhyGpusAreHidden(const std::string& root);

}  // namespace kvkeep
