// Settings: how the fake driver behaves, read from the file that KVKEEP_FAKE_CUDA names.
//
// The file has one setting a line, which README.md lists; absent settings, and all settings without
// a file, have their defaults. Every driver call checks the file, so a test changes a running
// process's driver by replacing the file (rename, never half-written). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kvkeep::fakecuda {

// The call `name` returns `error`, after `skip` good calls, for `times` calls.
struct Failure {
  std::string name;
  int error = 0;
  uint64_t skip = 0;
  uint64_t times = UINT64_MAX;
};

struct Settings {
  int version = 13000;
  int devices = 1;
  uint64_t memory_bytes = 1ull << 30;  // of each device
  bool mig = false;
  bool read_only_register = true;  // whether devices register memory that is mapped read-only
  bool strict = true;              // undefined behaviour ends the process (State::Violation)
  int sticky = 0;      // an error that breaks the context at the next call
  uint64_t copy_delay_us = 0;
  uint64_t batch_limit = 32768;
  std::set<std::string> hangs;    // calls that do not return; "stream": queued work stands still
  std::set<std::string> missing;  // functions that this driver lacks
  std::vector<Failure> failures;
};

// Returns the present settings: another object whenever the file has changed.
std::shared_ptr<const Settings> CurrentSettings();

}  // namespace kvkeep::fakecuda
