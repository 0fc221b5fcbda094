// DaemonProbe: what the daemon says of itself, asked from a process of its own: the main process
// stays without gRPC (child_process.h). One thread.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "tools/bench/child_process.h"
#include "tools/bench/json_fields.h"

namespace kvkeep::bench {

// What a status call answers, as far as the benchmark wants it.
struct DaemonStatus {
  int pid = 0;
  std::string version;
  std::string arena;
  uint64_t g2_capacity_bytes = 0;
  uint64_t g2_dirty_bytes = 0;
  uint64_t g3_capacity_bytes = 0;
  std::map<std::string, uint64_t> counters;

  KVKEEP_FIELDS(pid, version, arena, g2_capacity_bytes, g2_dirty_bytes, g3_capacity_bytes, counters)
  uint64_t counter(const std::string& name) const {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
  }
  // How much a counter rose since; 0 after a restart.
  uint64_t Since(const DaemonStatus& before, const std::string& name) const {
    const uint64_t now = counter(name), then = before.counter(name);
    return now < then ? 0 : now - then;
  }
};

inline constexpr std::chrono::minutes kWriteBackPatience{5};

class DaemonProbe {
 public:
  static absl::StatusOr<std::unique_ptr<DaemonProbe>> Start(const std::string& admin_endpoint);

  absl::StatusOr<DaemonStatus> Status();
  // Forgets all chunks.
  absl::Status Clear();
  // Waits until everything is written back.
  absl::Status AwaitClean(
      std::chrono::milliseconds timeout = kWriteBackPatience,
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
