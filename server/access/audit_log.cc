#include "server/access/audit_log.h"

#include <absl/strings/str_cat.h>

#include <utility>

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kLineEvery{60};
constexpr size_t kMaxCallers = 256;  // beyond it counts start anew, which writes lines too many

}  // namespace

void AuditLog::Write(const Entry& entry) {
  uint64_t unsaid = 0;
  if (!entry.repeated_by.empty()) {
    const MonotonicTime now = clock_->Now();
    MutexLock lock(&mu_);
    if (seen_.size() >= kMaxCallers && !seen_.contains(entry.repeated_by)) seen_.clear();
    Seen& seen = seen_[entry.repeated_by];
    if (seen.next_line != MonotonicTime() && now < seen.next_line) {
      ++seen.unsaid;
      return;
    }
    seen.next_line = now + kLineEvery;
    unsaid = std::exchange(seen.unsaid, 0);
  }
  log_->Always("audit", {{"call", std::string(entry.call)},
                         {"who", entry.who},
                         {"what", entry.what},
                         {"outcome", entry.outcome},
                         {"unsaid", absl::StrCat(unsaid)}});
}

}  // namespace kvkeep
