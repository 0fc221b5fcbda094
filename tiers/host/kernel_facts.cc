#include "tiers/host/kernel_facts.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "tiers/base/units.h"

namespace kvkeep {
namespace {

std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// "Name:   123 kB" of a file like /proc/meminfo.
std::optional<uint64_t> KibLine(absl::string_view line, absl::string_view name) {
  if (!absl::StartsWith(line, absl::StrCat(name, ":"))) return std::nullopt;
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  uint64_t kib = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &kib)) return std::nullopt;
  return kib;
}

// Lowers `least` to the limits of `group` and of the groups around it, up to the root we can see.
void TakeLeast(const std::string& mount, std::string group, const char* file, MemoryLimit& least) {
  while (true) {
    const std::string path = absl::StrCat(mount, group == "/" ? "" : group, "/", file);
    const std::optional<std::string> line = FirstLine(path);
    uint64_t bytes = 0;
    if (line && absl::SimpleAtoi(*line, &bytes) && bytes < least.bytes) least = {bytes, path};
    const size_t slash = group.rfind('/');
    if (group.size() <= 1 || slash == std::string::npos) return;
    group.resize(std::max<size_t>(slash, 1));
  }
}

}  // namespace

MemoryLimit LeastMemoryLimit() {
  MemoryLimit least;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/group" is version 2's; "4:memory:/group" or "4:cpu,memory:/group" are version 1's.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[0] == "0" && fields[1].empty()) {
      TakeLeast("/sys/fs/cgroup", fields[2], "memory.max", least);
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      TakeLeast("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes", least);
    }
  }
  return least;
}

std::optional<uint64_t> MemAvailable(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (const auto kib = KibLine(line, "MemAvailable")) return *kib * kKiB;
  }
  return std::nullopt;
}

absl::Status CheckMemoryFor(uint64_t bytes) {
  const std::optional<uint64_t> available = MemAvailable();
  if (available && bytes > *available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "arena: %d MiB of memory wanted, %d MiB available (MemAvailable of /proc/meminfo); lower "
        "the capacity or free memory",
        bytes / kMiB, *available / kMiB));
  }
  const MemoryLimit limit = LeastMemoryLimit();
  if (bytes > limit.bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "arena: %d MiB of memory wanted, %s allows %d MiB; lower the capacity or raise that limit",
        bytes / kMiB, limit.path, limit.bytes / kMiB));
  }
  return absl::OkStatus();
}

bool OvercommitIsStrict(const std::string& root) {
  return FirstLine(root + "/proc/sys/vm/overcommit_memory") == "2";
}

std::string ShmemEnabled(const std::string& root) {
  const auto line = FirstLine(root + "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (!line) return "unknown";
  const size_t open = line->find('[');
  const size_t close = line->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return line->substr(open + 1, close - open - 1);
}

std::string TmpfsHugeOption(dev_t device) {
  // "63 43 0:39 / /mnt rw,relatime - tmpfs none rw,size=1024k,huge=always"
  const std::string wanted = absl::StrCat(major(device), ":", minor(device));
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() < 4 || words[2] != wanted) continue;
    for (absl::string_view option : absl::StrSplit(words.back(), ',')) {
      if (absl::StartsWith(option, "huge=")) return std::string(option.substr(5));
    }
    return "never";
  }
  return "unknown";
}

absl::Status CheckPageSize(uint64_t page_bytes) {
  if (std::has_single_bit(page_bytes) && page_bytes >= 4 * kKiB && page_bytes <= 64 * kKiB) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this kernel has pages of ", page_bytes / kKiB,
                   " KiB; kvkeep runs with pages of 4 to 64 KiB: boot a kernel that has them"));
}

uint64_t HugePageBytes(const std::vector<std::span<std::byte>>& mappings) {
  const auto ours = [&mappings](uint64_t first, uint64_t end) {
    return std::any_of(mappings.begin(), mappings.end(), [&](std::span<std::byte> mapping) {
      const uint64_t start = reinterpret_cast<uint64_t>(mapping.data());
      return start < end && first < start + mapping.size();
    });
  };
  uint64_t kib = 0;
  bool inside = false;
  std::ifstream file("/proc/self/smaps");
  for (std::string line; std::getline(file, line);) {
    uint64_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &first, &end) == 2) {
      inside = ours(first, end);
      continue;
    }
    if (!inside) continue;
    for (const char* name :
         {"ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb"}) {
      kib += KibLine(line, name).value_or(0);
    }
  }
  return kib * kKiB;
}

}  // namespace kvkeep
