#include "tools/bench/proc_status.h"

#include <absl/strings/str_cat.h>

#include <filesystem>
#include <fstream>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

// The number behind "name:" of a process's or thread's status file.
absl::StatusOr<uint64_t> NumberOf(const std::string& directory, const std::string& name) {
  std::ifstream file(directory + "/status");
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word == name + ":" && file >> value) return value;
  }
  return absl::NotFoundError(absl::StrCat(directory, "/status does not tell ", name));
}

std::string ProcOf(int pid) { return absl::StrCat("/proc/", pid); }

}  // namespace

absl::StatusOr<uint64_t> ResidentBesideSharedBytes(int pid) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t own, NumberOf(ProcOf(pid), "RssAnon"));
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t files, NumberOf(ProcOf(pid), "RssFile"));
  return (own + files) * kKiB;
}

absl::StatusOr<uint64_t> ResidentSharedBytes(int pid) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t shared, NumberOf(ProcOf(pid), "RssShmem"));
  // Pages of a hugetlbfs are counted apart, and not at all by a kernel that has none.
  return (shared + NumberOf(ProcOf(pid), "HugetlbPages").value_or(0)) * kKiB;
}

absl::StatusOr<std::map<std::string, uint64_t>> WakeUpsOf(int pid) {
  std::map<std::string, uint64_t> by_name;
  const std::string tasks = ProcOf(pid) + "/task";
  std::error_code error;
  std::filesystem::directory_iterator task(tasks, error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const std::filesystem::path thread = task->path();
    std::ifstream comm(thread / "comm");
    std::string name;
    absl::StatusOr<uint64_t> count = absl::NotFoundError(thread.string() + "/comm cannot be read");
    if (std::getline(comm, name)) count = NumberOf(thread, "voluntary_ctxt_switches");
    if (count.ok()) {
      by_name[name] += *count;
    } else if (std::error_code ignored; std::filesystem::exists(thread, ignored)) {
      return count.status();  // else it has ended meanwhile
    }
  }
  if (error) return absl::NotFoundError(absl::StrCat(tasks, ": ", error.message()));
  if (by_name.empty()) return absl::NotFoundError(tasks + " names no thread");
  return by_name;
}

}  // namespace kvkeep::bench
