#include "tools/bench/process_memory.h"

#include <absl/strings/str_cat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

// The number behind "name:" of a status file; none: no such file or line.
std::optional<uint64_t> Number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    uint64_t value = 0;
    if (word == name + ":" && file >> value) return value;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<uint64_t> ResidentBesideSharedBytes(pid_t pid) {
  const std::string status = absl::StrCat("/proc/", pid, "/status");
  const std::optional<uint64_t> anonymous = Number(status, "RssAnon");
  const std::optional<uint64_t> files = Number(status, "RssFile");
  if (anonymous.has_value() && files.has_value()) return (*anonymous + *files) * kKiB;
  return absl::NotFoundError(absl::StrCat("no process ", pid));
}

absl::StatusOr<uint64_t> ResidentSharedBytes(pid_t pid) {
  const std::string status = absl::StrCat("/proc/", pid, "/status");
  const std::optional<uint64_t> shared = Number(status, "RssShmem");
  // Pages of a hugetlbfs are counted apart.
  const uint64_t huge = Number(status, "HugetlbPages").value_or(0);
  if (shared.has_value()) return (*shared + huge) * kKiB;
  return absl::NotFoundError(absl::StrCat("no process ", pid));
}

absl::StatusOr<std::map<std::string, uint64_t>> WakeUpsOf(pid_t pid) {
  std::map<std::string, uint64_t> by_name;
  std::error_code error;
  const std::string tasks = absl::StrCat("/proc/", pid, "/task");
  std::filesystem::directory_iterator task(tasks, error);
  if (error) return absl::NotFoundError(absl::StrCat("no process ", pid));
  for (; task != std::filesystem::directory_iterator(); task.increment(error)) {
    if (error) break;
    std::string name;
    std::ifstream comm(task->path().string() + "/comm");
    if (!std::getline(comm, name)) continue;  // it has ended meanwhile
    by_name[name] +=
        Number(task->path().string() + "/status", "voluntary_ctxt_switches").value_or(0);
  }
  return by_name;
}

}  // namespace kvkeep::bench
