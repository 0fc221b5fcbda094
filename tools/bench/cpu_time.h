// Clocks: wall time, and CPU time of this thread, of this process and of others, in seconds. Free
// functions.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace kvkeep::bench {

double WallSeconds();  // monotonic
double ThreadCpuSeconds();
double ProcessCpuSeconds();
// Of all threads of the process, user and system, in nanosecond steps: /proc/PID/stat counts in
// hundredths of a second only. NotFound: there is no such process.
absl::StatusOr<double> CpuSecondsOf(pid_t pid);

}  // namespace kvkeep::bench
