#include "tools/kvkeep/setup_facts.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/embedded.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kMostSlaves = 64;  // drives below one file system that are looked at

// "/mnt/my\040drive" as mountinfo escapes it.
std::string Unescaped(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool octal = text[i] == '\\' && i + 3 < text.size();
    if (!octal) {
      plain += text[i];
      continue;
    }
    plain +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

// Returns whether the block device "259:3" is on NVMe drives only, by sysfs.
bool IsNvme(const std::string& root, const std::string& device) {
  std::error_code error;
  const fs::path link(absl::StrCat(root, "/sys/dev/block/", device));
  const fs::path there = fs::weakly_canonical(link, error);
  if (error || !fs::exists(there, error)) return false;
  int slaves = 0, on_nvme = 0;
  for (fs::directory_iterator each(there / "slaves", error), end; !error && each != end;
       each.increment(error)) {
    if (++slaves > kMostSlaves) return false;
    on_nvme += absl::StartsWith(each->path().filename().string(), "nvme") ? 1 : 0;
  }
  if (slaves > 0) return slaves == on_nvme;
  return absl::StrContains(there.string(), "/nvme");
}

// What belongs to the system, or to its users, is shared: nothing there is filled.
bool IsOfTheSystem(absl::string_view mount_point) {
  if (mount_point == "/") return true;
  for (const absl::string_view dir :
       {"/boot", "/home", "/root", "/usr", "/var", "/opt", "/tmp", "/etc", "/srv", "/run"}) {
    if (mount_point == dir || absl::StartsWith(mount_point, absl::StrCat(dir, "/"))) return true;
  }
  return false;
}

bool HoldsPath(const std::string& mount_point, const std::string& path) {
  return mount_point == "/" || path == mount_point ||
         absl::StartsWith(path, absl::StrCat(mount_point, "/"));
}

struct Mount {
  std::string device;  // "259:3"
  std::string from;    // the directory of its file system that is mounted
  std::string point, type;
};

// Reads /proc/self/mountinfo (proc(5)), in its order.
std::vector<Mount> Mounts(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/self/mountinfo"));
  std::vector<Mount> mounts;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 7 || fields.end() - dash < 3) continue;
    mounts.push_back({fields[2], fields[3], Unescaped(fields[4]), *(dash + 1)});
  }
  return mounts;
}

// Returns the file systems that G3 may lie on, and the one that `path` is on, if it is one of them.
std::vector<LocalFileSystem> FileSystems(const std::string& root, const std::vector<Mount>& mounts,
                                         const std::string& path) {
  std::vector<LocalFileSystem> found;
  std::string around;             // the mount point that `path` is on, of any kind
  std::vector<std::string> seen;  // devices, of those found
  for (const auto& [device, from, mount_point, type] : mounts) {
    if (HoldsPath(mount_point, path) && mount_point.size() >= around.size()) around = mount_point;
    const bool file_system = type == "xfs" || type == "ext4";
    if (!file_system || from != "/") continue;
    // What is mounted twice counts once: by the first mount that is for data, if one is.
    const size_t at = std::find(seen.begin(), seen.end(), device) - seen.begin();
    const bool own = !IsOfTheSystem(mount_point);
    if (at < seen.size() && (found[at].own || !own)) continue;
    const std::string there = absl::StrCat(root, mount_point);
    struct statvfs space {};
    if (access(there.c_str(), W_OK | X_OK) != 0 && !HoldsPath(mount_point, path)) continue;
    if (statvfs(there.c_str(), &space) != 0) continue;
    const LocalFileSystem one = {.mount_point = mount_point,
                                 .type = type,
                                 .nvme = IsNvme(root, device),
                                 .own = own,
                                 .total_bytes = uint64_t{space.f_blocks} * space.f_frsize,
                                 .free_bytes = uint64_t{space.f_bavail} * space.f_frsize};
    if (at < seen.size()) {
      found[at] = one;
      continue;
    }
    seen.push_back(device);
    found.push_back(one);
  }
  // What is no place of its own counts only if the daemon's own directory is there.
  std::erase_if(
      found, [&](const LocalFileSystem& each) { return !each.own && each.mount_point != around; });
  return found;
}

bool HasMount(const std::vector<Mount>& mounts, absl::string_view mount_point) {
  return std::any_of(mounts.begin(), mounts.end(),
                     [mount_point](const Mount& mount) { return mount.point == mount_point; });
}

// Finds NAME-VERSION.dist-info, as pip writes it, of each engine.
std::vector<FoundEngine> Engines(const std::vector<std::string>& python_dirs) {
  std::vector<FoundEngine> engines;
  for (const char* const name : {"vllm", "sglang", "lmcache"}) {
    for (const std::string& dir : python_dirs) {
      std::error_code error;
      for (fs::directory_iterator each(dir, error), end; !error && each != end;
           each.increment(error)) {
        const std::string file = each->path().filename().string();
        const std::string begin = absl::StrCat(name, "-");
        if (!absl::StartsWith(file, begin) || !absl::EndsWith(file, ".dist-info")) continue;
        const size_t length = file.size() - begin.size() - std::string(".dist-info").size();
        engines.push_back({name, file.substr(begin.size(), length)});
      }
    }
  }
  const auto same = [](const FoundEngine& a, const FoundEngine& b) {
    return a.name == b.name && a.version == b.version;
  };
  engines.erase(std::unique(engines.begin(), engines.end(), same), engines.end());
  return engines;
}

// Returns the directories in which Python on this machine, or beside this binary, has packages.
std::vector<std::string> PythonDirs() {
  std::vector<std::string> dirs, bases = {"/usr", "/usr/local"};
  if (const char* const venv = std::getenv("VIRTUAL_ENV")) bases.insert(bases.begin(), venv);
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  // As the wheel has it: site-packages/kvkeep/bin/kvkeep.
  if (!error) dirs.push_back(self.parent_path().parent_path().parent_path().string());
  for (const std::string& base : bases) {
    for (fs::directory_iterator each(fs::path(base) / "lib", error), end; !error && each != end;
         each.increment(error)) {
      if (!absl::StartsWith(each->path().filename().string(), "python3")) continue;
      dirs.push_back((each->path() / "site-packages").string());
      dirs.push_back((each->path() / "dist-packages").string());
    }
  }
  return dirs;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the XDG directory, or the one below the home that stands for it.
std::string UserDir(const std::string& xdg, const std::string& home, const char* below) {
  const bool usable = absl::StartsWith(xdg, "/");
  return absl::StrCat(usable ? xdg : absl::StrCat(home, below), "/kvkeep");
}

}  // namespace

FactSources FactSources::OfProcess() {
  const UserEnvironment user = UserEnvironment::OfProcess();
  const MemoryLimit limit = LeastMemoryLimit();
  return {.is_root = geteuid() == 0,
          .home = user.home,
          .xdg_config_home = Variable("XDG_CONFIG_HOME"),
          .xdg_state_home = user.xdg_state_home,
          .memory_limit_bytes = limit.bytes,
          .memory_limit_path = limit.path,
          .python_dirs = PythonDirs()};
}

SetupFacts GatherFacts(const FactSources& sources) {
  SetupFacts facts;
  const std::vector<Mount> mounts = Mounts(sources.root);
  std::error_code ignored;
  facts.is_root = sources.is_root;
  facts.has_systemd = fs::exists(absl::StrCat(sources.root, "/run/systemd/system"), ignored);
  facts.available_bytes = MemAvailable(sources.root);
  facts.memory_limit_bytes = sources.memory_limit_bytes;
  facts.memory_limit_path = sources.memory_limit_path;
  if (sources.is_root) {
    facts.config_dir = "/etc/kvkeep";
    facts.state_dir = "/var/lib/kvkeep";
    facts.cache_dir = "/var/cache/kvkeep";
    for (const char* const dir : {"/etc", "/usr/lib", "/lib"}) {
      facts.has_unit |=
          fs::exists(absl::StrCat(sources.root, dir, "/systemd/system/kvkeepd.service"), ignored);
    }
    facts.arena_is_mounted = HasMount(mounts, "/var/lib/kvkeep/arena/rw") &&
                             HasMount(mounts, "/var/lib/kvkeep/arena/ro");
    struct statvfs space {};
    const std::string arena = absl::StrCat(sources.root, "/var/lib/kvkeep/arena/rw");
    if (facts.arena_is_mounted && statvfs(arena.c_str(), &space) == 0) {
      facts.arena_bytes = uint64_t{space.f_blocks} * space.f_frsize;
    }
  } else {
    facts.config_dir = UserDir(sources.xdg_config_home, sources.home, "/.config");
    facts.state_dir = UserDir(sources.xdg_state_home, sources.home, "/.local/state");
    facts.cache_dir = facts.state_dir;
  }
  facts.file_systems = FileSystems(sources.root, mounts, facts.cache_dir);
  facts.engines = Engines(sources.python_dirs);
  return facts;
}

}  // namespace kvkeep::tools
