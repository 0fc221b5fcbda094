#include "tiers/store/rates.h"

#include <absl/strings/str_cat.h>

namespace kvkeep::store_internal {
namespace {

absl::Status Refused(const char* limit, const TokenBucket& bucket, std::chrono::milliseconds wait) {
  return absl::ResourceExhaustedError(absl::StrCat(limit, ": this tenant has used its ",
                                                   bucket.per_second(), " a second; come back in ",
                                                   wait.count(), " ms"));
}

}  // namespace

absl::Status Rates::Ask(bool keys, bool bytes, MonotonicTime now, TenantCounters& counters) {
  const auto key_wait = keys ? keys_.Wait(now) : std::nullopt;
  if (key_wait.has_value()) {
    ++counters.key_rate_refusals;
    return Refused("keys_per_second", keys_, *key_wait);
  }
  const auto byte_wait = bytes ? bytes_.Wait(now) : std::nullopt;
  if (byte_wait.has_value()) {
    ++counters.byte_rate_refusals;
    return Refused("bytes_per_second", bytes_, *byte_wait);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::store_internal
