#include "tiers/objects/retry_budget.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

RetryBudget::RetryBudget(const RetryOptions& options)
    : options_(options), saved_(options.saved_retries * kRetry) {
  KVKEEP_CHECK(options.max_attempts >= 1 && options.share_percent <= 100);
  KVKEEP_CHECK(options.first_pause.count() > 0 && options.longest_pause >= options.first_pause);
}

void RetryBudget::CountRequest() {
  saved_ = std::min<uint64_t>(saved_ + options_.share_percent, options_.saved_retries * kRetry);
}

std::optional<std::chrono::nanoseconds> RetryBudget::TryRetry(uint32_t attempts, MonotonicTime now,
                                                              MonotonicTime deadline,
                                                              uint64_t random) {
  KVKEEP_CHECK(attempts >= 1);
  if (attempts >= options_.max_attempts) return std::nullopt;
  std::chrono::nanoseconds pause = options_.first_pause;
  for (uint32_t i = 1; i < attempts && pause < options_.longest_pause; ++i) pause *= 2;
  pause = std::min<std::chrono::nanoseconds>(pause, options_.longest_pause);
  pause -= std::chrono::nanoseconds(random % static_cast<uint64_t>(pause.count() / 2 + 1));
  if (now + pause >= deadline) return std::nullopt;
  if (saved_ < kRetry) {
    ++refused_;
    return std::nullopt;
  }
  saved_ -= kRetry;
  ++retries_;
  return pause;
}

}  // namespace kvkeep
