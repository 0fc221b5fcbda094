#include "tools/bench/cpu_time.h"

#include <absl/strings/str_cat.h>
#include <time.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep::bench {
namespace {

double Read(clockid_t clock) {
  timespec time{};
  KVKEEP_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double LongestStopOfBareLoop(double seconds) {
  constexpr int kStepsBetweenLooks = 1000;  // at the wall clock
  double longest = 0;
  const double end = Read(CLOCK_MONOTONIC) + seconds;
  double last = Read(CLOCK_THREAD_CPUTIME_ID);
  do {
    for (int i = 0; i < kStepsBetweenLooks; ++i) {
      const double now = Read(CLOCK_THREAD_CPUTIME_ID);
      longest = std::max(longest, now - last);
      last = now;
    }
  } while (Read(CLOCK_MONOTONIC) < end);
  return longest;
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

double LongestStopOfBareLoops(double seconds) {
  std::vector<double> longest(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> loops;
  for (double& stop : longest) {
    loops.emplace_back([&stop, each = seconds / static_cast<double>(longest.size())] {
      stop = LongestStopOfBareLoop(each);
    });
  }
  for (std::thread& loop : loops) loop.join();
  return *std::max_element(longest.begin(), longest.end());
}

}  // namespace kvkeep::bench
