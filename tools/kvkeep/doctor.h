// The doctor: what of this machine a daemon with a given config would meet with, each finding with
// what to do. Looks at the kernel's files and at the directories of the config; changes nothing
// but for an unnamed file of a page below each path of G3, which is gone at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace kvkeep::tools {

struct Finding {
  enum class State { kOk, kWarn, kFail };
  std::string subject;  // "huge pages"
  State state = State::kOk;
  std::string found;
  std::string to_do;  // empty when ok
};
const char* StateWord(Finding::State state);  // "ok", "warn", "fail"

// What is asked of the process and the machine, so that tests can answer.
struct Machine {
  std::string root;           // before /proc and /sys; empty: the real ones
  uint64_t locked_limit = 0;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: none
  bool io_uring = true;       // the kernel sets one up
  bool clock_is_kept = true;  // by NTP or the like
  int64_t now_seconds = 0;    // Unix time

  static Machine This();
};

std::vector<Finding> Examine(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
