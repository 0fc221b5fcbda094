#include "server/observe/process_stats.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kvkeep {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double Number(absl::string_view text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) ? number : 0;
}

double BootUnixSeconds() {
  const std::string stat = ReadAll("/proc/stat");
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 2 && words[0] == "btime") return Number(words[1]);
  }
  return 0;
}

// Reads the fields of /proc/self/stat from the third on, as the second, the name, may hold
// anything.
void ReadStat(ProcessStats* stats) {
  const std::string stat = ReadAll("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  const auto field = [&fields](size_t number) {  // as proc(5) counts them
    return number - 3 < fields.size() ? Number(fields[number - 3]) : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats->cpu_seconds = (field(14) + field(15)) / ticks;
  stats->threads = static_cast<uint64_t>(field(20));
  stats->virtual_bytes = static_cast<uint64_t>(field(23));
  stats->resident_bytes =
      static_cast<uint64_t>(field(24)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  static const double boot = BootUnixSeconds();
  stats->start_unix_seconds = boot + field(22) / ticks;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  ReadStat(&stats);
  std::error_code ignored;
  for (auto fd = std::filesystem::directory_iterator("/proc/self/fd", ignored);
       fd != std::filesystem::directory_iterator(); fd.increment(ignored)) {
    if (ignored) break;
    ++stats.open_fds;
  }
  if (stats.open_fds > 0) --stats.open_fds;  // the directory's own
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) stats.max_fds = files.rlim_cur;
  return stats;
}

}  // namespace kvkeep
