#include "tools/bench/client/cpu_time.h"

#include <time.h>

#include "tiers/base/check.h"

namespace kvkeep::bench {
namespace {

double Read(clockid_t clock) {
  timespec time{};
  KVKEEP_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

double WallSeconds() { return Read(CLOCK_MONOTONIC); }
double ThreadCpuSeconds() { return Read(CLOCK_THREAD_CPUTIME_ID); }
double ProcessCpuSeconds() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace kvkeep::bench
