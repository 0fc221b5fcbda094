// Facts about a machine from which `kvkeep init` chooses a daemon's config. It reads the kernel's
// files and asks the file systems how full they are. It changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvkeep::tools {

// A mounted XFS or ext4 on a local drive that this user may write to.
struct LocalFileSystem {
  std::string mount_point;
  std::string type;   // "xfs" or "ext4"
  bool nvme = false;  // all drives below it are NVMe
  bool own = false;   // mounted for data: no directory of the system (/, /var, /home, ...)
  uint64_t total_bytes = 0, free_bytes = 0;
};

// An engine's Python package.
struct FoundEngine {
  std::string name;     // "vllm", "sglang" or "lmcache"
  std::string version;  // "0.33.0"
};

struct SetupFacts {
  bool is_root = false;
  bool has_systemd = false;                  // this machine was booted with it
  std::optional<uint64_t> available_bytes;   // MemAvailable; none: not known
  uint64_t memory_limit_bytes = UINT64_MAX;  // the least of all cgroups
  std::string memory_limit_path;             // the file that says it
  bool arena_is_mounted = false;             // the package's two mounts of G2
  uint64_t arena_bytes = 0;                  // what they hold
  bool has_unit = false;                     // the system has a kvkeepd.service
  std::vector<LocalFileSystem> file_systems;
  std::vector<FoundEngine> engines;
  // Directories of a daemon that this user starts.
  std::string config_dir, state_dir, cache_dir;
};

// Where GatherFacts looks; tests have directories of their own.
struct FactSources {
  std::string root;  // stands before each path; empty: this machine's
  bool is_root = false;
  std::string home, xdg_config_home, xdg_state_home;
  uint64_t memory_limit_bytes = UINT64_MAX;
  std::string memory_limit_path;
  std::vector<std::string> python_dirs;  // site-packages to look for engines in

  static FactSources OfProcess();
};

SetupFacts GatherFacts(const FactSources& sources);

}  // namespace kvkeep::tools
