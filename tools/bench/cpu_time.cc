#include "tools/bench/cpu_time.h"

#include <absl/strings/str_cat.h>
#include <time.h>

#include <algorithm>

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

absl::StatusOr<double> CpuSecondsOf(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return absl::NotFoundError(absl::StrCat("no process ", pid));
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double LongestStopOfBareLoop(double seconds) {
  constexpr int kStepsBetweenLooks = 1000;  // at the wall clock
  double longest = 0;
  const double end = WallSeconds() + seconds;
  double last = ThreadCpuSeconds();
  do {
    for (int i = 0; i < kStepsBetweenLooks; ++i) {
      const double now = ThreadCpuSeconds();
      longest = std::max(longest, now - last);
      last = now;
    }
  } while (WallSeconds() < end);
  return longest;
}

}  // namespace kvkeep::bench
