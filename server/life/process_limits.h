// Limits that the system sets for this process. No state.
#pragma once

#include <string>

namespace kvkeep {

// Returns how much memory the process may lock, in bytes, for people.
std::string LockedMemoryLimit();

// Raises the limit of open descriptors as far as the daemon needs and may: a session of the local
// path takes five; the usual soft limit is 1024 in all.
void RaiseDescriptorLimit();

}  // namespace kvkeep
