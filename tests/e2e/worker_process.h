// WorkerProcess: a client of the local path in a process of its own (local_client_main.cc), which
// tests kill or stop. Dies with the test.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/e2e/engine.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {

// Returns settings of a daemon with a local path that revokes a worker's leases after 4 s without
// an answer.
inline Settings WithShortGrace() {
  return {.local = true, .limits = "  session_grace: 4s\n  staging_per_session: 2MiB\n"};
}

class WorkerProcess {
 public:
  struct Options {
    std::vector<TestChunk> warm, cold;  // numbered without gaps, all of one size
    std::string point;                  // where it dies, or "hold"
    int nth = 1;                        // the visit at which it dies
    int pid = 0;                        // its process number, see ForkAs, once that is free; 0: any
  };
  WorkerProcess(const Site& site, const Options& options);
  ~WorkerProcess();
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;

  // Returns the next line of its standard output; empty if it ended, or printed nothing in time.
  std::string ReadLine(milliseconds timeout = milliseconds(30'000));
  void Signal(int number);
  // Waits for its end. Returns the signal that killed it, or minus its exit status.
  int AwaitEnd();
  int pid() const { return pid_; }

 private:
  int pid_ = 0;
  UniqueFd out_;
};

}  // namespace kvkeep::e2e
