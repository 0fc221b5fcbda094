// Contest: the contestants, each in a process of its own with servers of its own, and rounds in
// which each has one slice. The order moves on by one each round, so that nobody always follows
// the same neighbour. Those of other projects are Python programs (peers/), run by the interpreter
// of the environment that they are installed in.
//
// One thread; forks, so this process must not have touched gRPC.
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

inline constexpr char kMemcpy[] = "memcpy";
// Who puts from and gets to memory of its own, and who puts from where an engine would have laid
// it.
inline constexpr char kKvkeepLocal[] = "kvkeep local";
inline constexpr char kKvkeepStaging[] = "kvkeep staging";
// And what its messages are compared with.
inline constexpr char kKvkeepGrpc[] = "kvkeep gRPC";
inline constexpr char kBareStream[] = "gRPC stream";
// The peers' names, for ContestOptions::environments.
inline constexpr char kLmcache[] = "LMCache";
inline constexpr char kMooncake[] = "Mooncake";

struct ContestOptions {
  std::string daemon_binary;
  std::string directory;                            // exists; files and sockets go there
  std::vector<std::string> only;                    // names; empty: all
  std::string peers_directory;                      // of the Python programs
  std::map<std::string, std::string> environments;  // name -> venv; a peer without one is absent
  uint64_t capacity_bytes = 0;                      // each contestant's
  uint64_t region_bytes = 0;                        // what is got to, and put from
  double seconds = 0;                               // of a slice
  int rounds = 0;
};

// What everybody came to, round by round.
struct Discipline {
  Operation operation = Operation::kGet;
  uint64_t size = 0;   // of a chunk
  uint64_t batch = 1;  // keys of a call
  // Puts into stores that were just started: memory that nobody has touched since.
  bool first_fill = false;
  std::map<std::string, bench::Series> results;
};

class Contest {
 public:
  // The names, the baseline first.
  static std::vector<std::string> Names();

  // `said` hears who is started, and why one is not there.
  static absl::StatusOr<std::unique_ptr<Contest>> Start(
      const ContestOptions& options, const std::function<void(const std::string&)>& said);

  // Fills in `keys` chunks of `size` bytes, then runs the rounds of one operation after the other,
  // in calls of `batch` chunks. The first Run's filling is a discipline of its own, in as many
  // rounds as it has calls, or fewer.
  absl::StatusOr<std::vector<Discipline>> Run(const std::vector<Operation>& operations,
                                              uint64_t size, uint64_t keys, uint64_t batch);

  const std::vector<std::string>& present() const { return present_; }
  // Of those that say so: name -> version.
  const std::map<std::string, std::string>& versions() const { return versions_; }

 private:
  struct Side {
    std::unique_ptr<bench::DaemonProcess> daemon;  // kvkeep's
    std::unique_ptr<bench::ChildProcess> child;
    std::vector<pid_t> servers;  // the daemon, or what the contestant says
    std::string version;
    std::string log;  // of a program; empty: none
  };
  struct Kind;
  static const Kind kKinds[];

  explicit Contest(ContestOptions options) : options_(std::move(options)) {}
  absl::StatusOr<Side> StartSide(const Kind& kind);
  absl::Status StartDaemon(const Kind& kind, Setup* setup, Side* side) const;
  absl::Status StartProgram(const Kind& kind, Side* side) const;
  // One slice of one contestant: what it measured, and what its servers used meanwhile.
  absl::Status Take(const std::string& name, const bench::Json& command, Discipline* discipline);
  // A slice of everybody, `rounds` times; `command_of` is asked for each round's.
  absl::Status TakeRounds(uint64_t rounds,
                          const std::function<bench::Json(uint64_t round)>& command_of,
                          Discipline* discipline);

  const ContestOptions options_;
  std::vector<std::string> present_;  // in the order of Names()
  std::map<std::string, Side> sides_;
  std::map<std::string, std::string> versions_;
  bool untouched_ = true;  // nothing was put yet
};

}  // namespace kvkeep::compare
