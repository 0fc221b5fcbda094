// LoadGenerator: the clients of one daemon, all doing the same case at once, and what the daemon
// spent on it. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/bench/bench_client.h"
#include "tools/bench/series.h"

namespace kvkeep::bench {

class LoadGenerator {
 public:
  // `daemon_pid`: 0: as the daemon's status says. Without an admin endpoint nothing is known of the
  // daemon.
  static absl::StatusOr<std::unique_ptr<LoadGenerator>> Start(const ClientTarget& target,
                                                              const std::string& admin_endpoint,
                                                              uint32_t clients, int daemon_pid = 0);

  absl::Status Load(uint64_t first, uint64_t count, uint64_t size, bool no_g3 = true);
  // An empty series for the case; Run adds a round to it.
  absl::StatusOr<Series> Prepare(std::string name, const CaseSpec& spec);
  // Ends when all clients have. A failed call is a count, a dead client an error.
  absl::Status Run(double seconds, Series* series, uint64_t max_ops = 0);

  BenchClient& client(size_t number) { return *clients_[number]; }
  DaemonProbe* probe() { return probe_.get(); }
  absl::StatusOr<DaemonStatus> Status();

 private:
  LoadGenerator() = default;

  std::vector<std::unique_ptr<BenchClient>> clients_;
  std::unique_ptr<DaemonProbe> probe_;
  int daemon_pid_ = 0;
};

}  // namespace kvkeep::bench
