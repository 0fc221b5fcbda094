// Clocks: wall time, and CPU time of this thread and of this process, in seconds. Free functions.
#pragma once

namespace kvkeep::bench {

double WallSeconds();  // monotonic
double ThreadCpuSeconds();
double ProcessCpuSeconds();

}  // namespace kvkeep::bench
