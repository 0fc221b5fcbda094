// A directory made read-only for one process: by a mount in a namespace of its own, since root, as
// which tests often run, may write to everything else.
#pragma once

#include <string>

namespace kvkeep::e2e {

// For Site::before_exec: only system calls. Ends the process when it does not work.
void MountReadOnly(const char* dir);
// Whether it works here.
bool ReadOnlyMountsWork(const std::string& dir);

}  // namespace kvkeep::e2e
