#include "tests/e2e/process_usage.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/e2e/daemon.h"

namespace kvkeep::e2e {

ProcessUsage UsageOf(uint64_t pid) {
  ProcessUsage usage;
  for (const absl::string_view line :
       absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/status")), '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(std::string(line), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    if (words[0] == "RssAnon:") usage.private_bytes = std::stoull(words[1]) * 1024;
    if (words[0] == "Threads:") usage.threads = std::stoull(words[1]);
  }
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  // After the name in brackets: state is the 3rd field, minflt the 10th, utime and stime the 14th
  // and 15th.
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  usage.page_faults = std::stoull(fields[7]);
  usage.cpu_seconds = static_cast<double>(std::stoull(fields[11]) + std::stoull(fields[12])) /
                      static_cast<double>(sysconf(_SC_CLK_TCK));
  return usage;
}

}  // namespace kvkeep::e2e
