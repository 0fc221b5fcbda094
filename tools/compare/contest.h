// Contest: the contestants, each in a process of its own with servers of its own, and rounds in
// which all take their turn. The order moves on by one each round, so that nobody always follows
// the same neighbour. One thread; forks, so this process must not have touched gRPC.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/child_process.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/series.h"
#include "tools/compare/contestant.h"

namespace kvkeep::compare {

struct ContestOptions {
  std::string daemon_binary;
  std::string directory;          // exists; files and sockets go there
  std::vector<std::string> only;  // names; empty: all
  uint64_t capacity_bytes = 0;    // each contestant's
  uint64_t region_bytes = 0;      // what is got to, and put from
  double seconds = 0;             // of a slice
  int rounds = 0;
};

// What everybody came to, round by round.
struct Discipline {
  Operation operation = Operation::kGet;
  uint64_t size = 0;   // of a chunk
  uint64_t batch = 1;  // keys of a call
  std::map<std::string, bench::Series> results;
};

class Contest {
 public:
  // The names, the baseline first.
  static std::vector<std::string> Names();

  // `said` hears who is started, and why one is not there.
  static absl::StatusOr<std::unique_ptr<Contest>> Start(
      const ContestOptions& options, const std::function<void(const std::string&)>& said);

  // Loads `keys` chunks of `size` bytes, then runs the rounds of one operation after the other.
  absl::StatusOr<std::vector<Discipline>> Run(const std::vector<Operation>& operations,
                                              uint64_t size, uint64_t keys, uint64_t batch);
  const std::vector<std::string>& present() const { return present_; }

 private:
  struct Side {
    std::unique_ptr<bench::DaemonProcess> daemon;  // kvkeep's
    std::unique_ptr<bench::ChildProcess> child;
  };

  explicit Contest(ContestOptions options) : options_(std::move(options)) {}
  absl::StatusOr<Side> StartSide(const std::string& name);

  const ContestOptions options_;
  std::vector<std::string> present_;  // in the order of Names()
  std::map<std::string, Side> sides_;
};

}  // namespace kvkeep::compare
