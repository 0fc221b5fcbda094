// DaemonProcess: a kvkeepd of the benchmark's own, in a fresh directory that goes away with it.
//
// It dies with the object, and with this process however that ends. One thread; forks, so this
// process must not have touched gRPC.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>

namespace kvkeep::bench {

struct DaemonOptions {
  std::string binary;       // kvkeepd
  std::string scratch_dir;  // the fresh directory is made in it; empty: $TMPDIR or the usual one
  bool tcp = false;         // listens on a free port of the loopback too
  uint64_t g2_bytes = 0;
  uint64_t g3_bytes = 0;                      // 0: none
  std::string arena_dir, arena_readonly_dir;  // the mounts; empty: memfd
  std::string g3_admission = "all";
  int copy_threads = 0;  // 0: as the daemon is built
  uint64_t leases_per_session = 4096;
  std::function<void(int pid)> while_starting;  // about every ms until it serves; may be empty

  absl::Status Validate() const;
};

class DaemonProcess {
 public:
  // Returns when it serves. Unavailable, with the daemon's last words, when it ends instead.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(const DaemonOptions& options);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;

  // Of all its files, on the drive of its G3; goes with it, and so does what others put there.
  const std::string& directory() const { return dir_; }
  std::string endpoint() const { return "unix://" + dir_ + "/kvkeep.sock"; }
  std::string admin_endpoint() const { return "unix://" + dir_ + "/admin.sock"; }
  std::string tcp_endpoint() const { return tcp_endpoint_; }  // empty: not asked for
  std::string local_socket() const { return dir_ + "/local.sock"; }
  int pid() const { return pid_; }
  double ready_at() const { return ready_at_; }  // WallSeconds() when it was seen to serve

 private:
  explicit DaemonProcess(std::string dir) : dir_(std::move(dir)) {}
  absl::Status WriteConfig(const DaemonOptions& options) const;
  absl::Status AwaitServing(const std::function<void(int pid)>& while_starting);
  std::string LastWords() const;

  const std::string dir_;
  std::string tcp_endpoint_;
  int pid_ = 0;
  double ready_at_ = 0;
};

}  // namespace kvkeep::bench
