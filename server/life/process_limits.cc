#include "server/life/process_limits.h"

#include <absl/strings/str_cat.h>
#include <sys/resource.h>

#include <algorithm>

namespace kvkeep {

std::string LockedMemoryLimit() {
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0) return "unknown";
  return locked.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(locked.rlim_cur);
}

void RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 65536;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kEnough) return;
  files.rlim_cur = std::min(files.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace kvkeep
