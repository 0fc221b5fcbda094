// ForkedRuns: runs of the simulation in processes of their own, some at a time, so that a failed
// check ends only its run and is reported with the seed. One thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>

#include "tests/sim/simulation.h"

namespace kvkeep {

struct RunResult {
  std::string failure;   // the failed check, or the signal; empty: none
  bool checked = false;  // a check failed; not a crash or hang
  std::string output;    // what it printed
  uint64_t last_step = 0;
  SimulationReport report;  // if it did not fail
};

class ForkedRuns {
 public:
  using Done = std::function<void(const RunResult&)>;

  explicit ForkedRuns(unsigned jobs) : jobs_(jobs) {}
  ~ForkedRuns() { WaitAll(); }

  // Waits for a free place first. Start or WaitAll calls `done`.
  void Start(const SimulationOptions& options, Done done);
  void WaitAll();

  static RunResult Run(const SimulationOptions& options);

 private:
  struct Shared;  // with the child
  struct Child {
    int output = -1;
    Shared* shared = nullptr;
    Done done;
  };
  void WaitForOne();

  const unsigned jobs_;
  std::map<pid_t, Child> children_;
};

}  // namespace kvkeep
