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

// Loops that do nothing, one on each core, for so long all together: the longest that the CPU time
// of one stood still for it. What interrupts, the kernel's own work on its behalf and the host
// below take counts as the thread's time; this is the least that any "longest" of CPU time can be
// judged against.
double LongestStopOfBareLoops(double seconds);

}  // namespace kvkeep::bench
