// BenchClient: one client of a daemon in a process of its own, as the main process commands it.
// DaemonProbe: what the daemon says of itself, asked from a process of its own too.
//
// The main process stays without gRPC and client library (child_process.h). One thread.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "tools/bench/case.h"
#include "tools/bench/child_process.h"
#include "tools/bench/client_target.h"

namespace kvkeep::bench {

struct OpenedGpu {
  std::string device;         // and its driver
  uint64_t daemon_bytes = 0;  // of its memory, that the daemon took to serve this client
};

class BenchClient {
 public:
  // Forks, and connects: number `number` of so many. Unavailable, or FailedPrecondition when path
  // local is not to be had.
  static absl::StatusOr<std::unique_ptr<BenchClient>> Start(const ClientTarget& target,
                                                            uint32_t number, uint32_t clients);

  const std::string& path() const { return path_; }  // "grpc" or "local"
  const std::string& why() const { return why_; }    // that one

  // Puts chunks [first, first + count) of `size` bytes, in large calls.
  absl::Status Load(uint64_t first, uint64_t count, uint64_t size, bool no_g3);
  // Makes the operations of a case, with their buffers; they are kept for Run. Answers its number.
  absl::StatusOr<int> Prepare(const CaseSpec& spec);
  absl::Status StartRun(int prepared, double seconds, uint64_t max_ops, bool verify);
  absl::StatusOr<Measured> FinishRun(double seconds);
  absl::StatusOr<Measured> Run(int prepared, double seconds, uint64_t max_ops = 0,
                               bool verify = true);
  // Opens the GPU for cases with runs on it. `path`: cuda-ipc or pinned; `call_bytes`: payload of
  // the largest call; `mount_dir`: of the arena, or empty.
  absl::StatusOr<OpenedGpu> OpenGpu(const std::string& path, uint64_t call_bytes,
                                    const std::string& mount_dir);
  // Plain copies of that many bytes in one piece. REQUIRES: OpenGpu, with at least as many.
  absl::StatusOr<Measured> CopyPlain(bool to_gpu, uint64_t bytes, double seconds);
  // Takes a lease on each of the loaded chunks [0, leases), of `size` bytes, and keeps them.
  // Answers how many it has.
  absl::StatusOr<uint64_t> HoldLeases(uint64_t leases, uint64_t size);

 private:
  explicit BenchClient(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  std::unique_ptr<ChildProcess> child_;
  std::string path_;
  std::string why_;
};

// What a status call answers, as far as the benchmark wants it.
struct DaemonStatus {
  int pid = 0;
  std::string version;
  std::string arena;
  uint64_t g2_capacity_bytes = 0;
  uint64_t g2_chunks = 0;
  uint64_t g2_dirty_bytes = 0;
  uint64_t g3_capacity_bytes = 0;
  uint64_t g3_chunks = 0;
  std::map<std::string, uint64_t> counters;

  uint64_t counter(const std::string& name) const {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
  }
};

inline constexpr std::chrono::minutes kWriteBackPatience{5};

class DaemonProbe {
 public:
  static absl::StatusOr<std::unique_ptr<DaemonProbe>> Start(const std::string& admin_endpoint);

  absl::StatusOr<DaemonStatus> Status();
  // Forgets all chunks. Answers how many.
  absl::StatusOr<uint64_t> Clear();
  // Waits until everything is written back.
  absl::Status AwaitClean(
      std::chrono::milliseconds timeout,
      std::chrono::milliseconds pause_between_looks = std::chrono::milliseconds(2));
  // Waits until the daemon has asked the GPU's driver for all of its arena.
  absl::Status AwaitGpuArena(std::chrono::milliseconds timeout);

 private:
  explicit DaemonProbe(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}
  absl::Status Await(absl::FunctionRef<bool(const DaemonStatus&)> done,
                     std::chrono::milliseconds timeout,
                     std::chrono::milliseconds pause_between_looks, const char* what);

  std::unique_ptr<ChildProcess> child_;
};

}  // namespace kvkeep::bench
