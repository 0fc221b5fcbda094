// The doctor: findings on this machine for a daemon with a given config, each with what to do. It
// looks at the kernel's files and at the directories of the config, and changes nothing but for an
// unnamed file of a page below each path of G3, which is gone at once. It measures the paths' speed
// only on request, with a larger file of the same kind.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "tools/kvkeep/disk_speed.h"

namespace kvkeep::tools {

struct Finding {
  enum class State { kOk, kWarn, kFail };
  std::string subject;  // "huge pages"
  State state = State::kOk;
  std::string found;
  std::string to_do;  // empty when ok
};
const char* StateWord(Finding::State state);  // "ok", "warn", "fail"

// Facts about the process and the machine, so that tests can give their own.
struct Machine {
  std::string root;           // before /proc and /sys; empty: the real ones
  uint64_t locked_limit = 0;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: none
  uint64_t descriptor_limit = UINT64_MAX;  // RLIMIT_NOFILE that the daemon may raise its own to
  bool io_uring = true;       // the kernel sets one up
  bool clock_is_kept = true;  // by NTP or the like
  bool cuda_driver = false;   // libcuda.so.1 can be loaded
  int64_t now_seconds = 0;    // Unix time

  static Machine This();
};

std::vector<Finding> Examine(const Config& config, const Machine& machine);

struct MeasuredPath {
  std::string dir;  // as the config has it
  absl::StatusOr<DiskSpeed> speed;
};
// Each path of G3, one after the other.
std::vector<MeasuredPath> MeasurePaths(const Config& config, const DiskSpeedOptions& options);
// Against what the config wants of them, and what `kvkeep plan` supposes where nobody says more.
std::vector<Finding> JudgeSpeeds(const Config& config, const std::vector<MeasuredPath>& paths);

}  // namespace kvkeep::tools
