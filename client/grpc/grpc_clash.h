// Notices that another copy of gRPC in this process has taken over objects of ours. Internal.
#pragma once

#include <absl/status/status.h>

namespace kvkeep::client {

// Returns FAILED_PRECONDITION, with the other library's path, if a second gRPC for C++ was loaded
// before ours, as by NIXL's Python package. The loader keeps one object in a process for each name
// that GCC marks as unique, whatever library it comes from, so our gRPC would use the other one's
// tables, of another layout, and crash. KeepGrpcLoaded calls it. The libraries of our wheel
// have no unique names. They clash only with a gRPC of the program itself, or one that was loaded
// with RTLD_GLOBAL or LD_PRELOAD.
absl::Status CheckGrpcClash();

}  // namespace kvkeep::client
