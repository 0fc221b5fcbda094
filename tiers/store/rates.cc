#include "tiers/store/rates.h"

#include <absl/strings/str_cat.h>

namespace kvkeep::store_internal {
namespace {

absl::Status Refused(const char* limit, const TokenBucket& rate, std::chrono::milliseconds wait) {
  return absl::ResourceExhaustedError(
      absl::StrCat(limit, ": this tenant has used its ", rate.per_second(),
                   " a second; come back in ", wait.count(), " ms"));
}

}  // namespace

absl::Status Rates::Ask(bool keys, bool bytes, MonotonicTime now, TenantCounters& counters) {
  const auto for_keys = keys ? keys_.Wait(now) : std::nullopt;
  if (for_keys.has_value()) {
    ++counters.key_rate_refusals;
    return Refused("keys_per_second", keys_, *for_keys);
  }
  const auto for_bytes = bytes ? bytes_.Wait(now) : std::nullopt;
  if (for_bytes.has_value()) {
    ++counters.byte_rate_refusals;
    return Refused("bytes_per_second", bytes_, *for_bytes);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::store_internal
