// Makes a directory read-only for one process, by a mount in its own namespace, since tests often
// run as root, which may write everywhere else.
#pragma once

#include <string>

namespace kvkeep::e2e {

// For Site::before_exec: makes only system calls. Ends the process on failure.
void MountReadOnly(const char* dir);
// Returns whether it works here.
bool ReadOnlyMountsWork(const std::string& dir);

}  // namespace kvkeep::e2e
