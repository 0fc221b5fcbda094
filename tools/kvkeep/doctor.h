// The doctor: findings on this machine for a daemon with a given config, each with a remedy. It
// reads the kernel's files and the directories of the config. It changes nothing, except that it
// makes an unnamed file of a page below each path of G3, which vanishes at once. It measures the
// paths' speed only on request, with a larger file of the same kind.
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

// Facts about the process and the machine; tests can set their own.
struct Machine {
  std::string root;           // prefix of /proc and /sys; empty: the real ones
  uint64_t locked_limit = 0;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: none
  uint64_t descriptor_limit = UINT64_MAX;  // hard RLIMIT_NOFILE, up to which the daemon may go
  uint64_t page_bytes = 4096;
  bool io_uring = true;                    // the kernel can set up a ring
  bool clock_is_kept = true;  // by NTP or the like
  bool cuda_driver = false;   // libcuda.so.1 can be loaded
  int64_t now_seconds = 0;    // Unix time

  static Machine This();
};

std::vector<Finding> Examine(const Config& config, const Machine& machine);

struct MeasuredPath {
  std::string dir;  // as in the config
  absl::StatusOr<DiskSpeed> speed;
};
// Measures each path of G3, one after the other.
std::vector<MeasuredPath> MeasurePaths(const Config& config, const DiskSpeedOptions& options);
// Compares the speeds with what the config requires, and with what `kvkeep plan` assumes by
// default.
std::vector<Finding> JudgeSpeeds(const Config& config, const std::vector<MeasuredPath>& paths);

}  // namespace kvkeep::tools
