#include "server/observe/log_limit.h"

#include <algorithm>
#include <utility>

namespace kvkeep {
namespace {

constexpr char kOthers[] = "(others)";

}  // namespace

std::optional<uint64_t> LogLimit::Ask(absl::string_view name, MonotonicTime now) {
  MutexLock lock(&mu_);
  auto found = sites_.find(name);
  if (found == sites_.end()) {
    const bool shares = sites_.size() >= kMaxSites;
    found = sites_.try_emplace(std::string(shares ? absl::string_view(kOthers) : name)).first;
    if (found->second.last == MonotonicTime{0}) found->second.refilled_at = now;
  }
  Site& site = found->second;
  site.last = now;
  if (now > site.refilled_at) {
    const auto steps = static_cast<uint64_t>((now - site.refilled_at) / kRefill);
    site.refilled_at += steps * kRefill;
    site.left = std::min(kBurst, site.left + steps);
  }
  if (site.left == 0) {
    ++site.unsaid;
    return std::nullopt;
  }
  --site.left;
  return std::exchange(site.unsaid, 0);
}

std::vector<LogLimit::Unsaid> LogLimit::TakeUnsaid(MonotonicTime now) {
  std::vector<Unsaid> all;
  MutexLock lock(&mu_);
  for (auto& [name, site] : sites_) {
    if (site.unsaid == 0 || now - site.last < kQuiet) continue;
    all.push_back({name, std::exchange(site.unsaid, 0)});
  }
  return all;
}

}  // namespace kvkeep
