#include "server/gpu/gpu_strikes.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace kvkeep {

void GpuStrikes::NoteBreak(std::vector<GpuTenant> with_the_driver) {
  std::sort(with_the_driver.begin(), with_the_driver.end());
  with_the_driver.erase(std::unique(with_the_driver.begin(), with_the_driver.end()),
                        with_the_driver.end());
  MutexLock lock(&mu_);
  if (with_the_driver.size() == 1) {
    ++known_[with_the_driver.front()].strikes;
    return;
  }
  for (const GpuTenant tenant : with_the_driver) known_[tenant].apart = true;
}

bool GpuStrikes::MayBeBeside(GpuTenant one, GpuTenant other) const {
  if (one == other) return true;
  MutexLock lock(&mu_);
  if (known_.empty()) return true;
  for (const GpuTenant tenant : {one, other}) {
    const auto found = known_.find(tenant);
    if (found != known_.end() && found->second.apart) return false;
  }
  return true;
}

absl::Status GpuStrikes::Check(GpuTenant tenant) const {
  MutexLock lock(&mu_);
  const auto found = known_.find(tenant);
  if (found == known_.end() || found->second.strikes < most_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("this tenant may use no GPU until the daemon starts again: its memory or copies "
                   "broke the context of one ",
                   found->second.strikes, " times"));
}

size_t GpuStrikes::tenants_off() const {
  MutexLock lock(&mu_);
  return static_cast<size_t>(
      std::count_if(known_.begin(), known_.end(),
                    [this](const auto& known) { return known.second.strikes >= most_; }));
}

}  // namespace kvkeep
