// LoadGenerator: the clients of one daemon, each in a process of its own (bench_client.h), all
// doing the same at once, and what the daemon spent on it. The main process' side; one thread.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/bench/case.h"
#include "tools/bench/client_target.h"
#include "tools/bench/daemon_probe.h"
#include "tools/bench/series.h"

namespace kvkeep::bench {

struct OpenedGpu {
  std::string device;         // and its driver
  uint64_t daemon_bytes = 0;  // of its memory, that the daemon took to serve this client
};

class LoadGenerator {
 public:
  // Unavailable, or FailedPrecondition when path local is not to be had. `daemon_pid`: 0: as the
  // daemon's status says. Without an admin endpoint nothing is known of the daemon.
  static absl::StatusOr<std::unique_ptr<LoadGenerator>> Start(const ClientTarget& target,
                                                              const std::string& admin_endpoint,
                                                              uint32_t clients, int daemon_pid = 0);

  // The answer of the first client to a command of bench_client.h; of all, who work at once.
  // `seconds`: how long that takes a client, about.
  absl::StatusOr<Json> Ask(const Json& command, double seconds = 0);
  absl::StatusOr<std::vector<Json>> AskAll(const Json& command, double seconds = 0);

  // Puts chunks [first, first + count) of `size` bytes, in large calls.
  absl::Status Load(uint64_t first, uint64_t count, uint64_t size, bool no_g3 = true);
  // Makes the operations of a case in each client. An empty series for it; Run adds a round to it.
  absl::StatusOr<Series> Prepare(std::string name, const CaseSpec& spec);
  // Ends when all clients have. A failed call is a count, a dead client an error.
  absl::Status Run(double seconds, Series* series, uint64_t max_ops = 0);

  // The first client takes a lease on each of the loaded chunks [0, leases), and keeps them.
  absl::Status HoldLeases(uint64_t leases, uint64_t size);
  // The first client opens the GPU for cases with runs on it. `path`: cuda-ipc or pinned;
  // `call_bytes`: payload of the largest call; `mount_dir`: of the arena, or empty.
  absl::StatusOr<OpenedGpu> OpenGpu(const std::string& path, uint64_t call_bytes,
                                    const std::string& mount_dir);
  // Plain copies of that many bytes in one piece. REQUIRES: OpenGpu, with at least as many.
  absl::StatusOr<Measured> CopyPlain(bool to_gpu, uint64_t bytes, double seconds);

  const std::string& path() const { return path_; }  // "local: SOCKET" or "grpc: WHY"
  int daemon_pid() const { return daemon_pid_; }
  DaemonProbe* probe() { return probe_.get(); }
  absl::StatusOr<DaemonStatus> Status();

 private:
  LoadGenerator() = default;

  std::vector<std::unique_ptr<ChildProcess>> clients_;
  std::string path_, kind_of_path_;
  std::unique_ptr<DaemonProbe> probe_;
  int daemon_pid_ = 0;
};

}  // namespace kvkeep::bench
