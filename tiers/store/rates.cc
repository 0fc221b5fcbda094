#include "tiers/store/rates.h"

#include <absl/strings/str_cat.h>

namespace kvkeep::store_internal {
namespace {

absl::Status Refused(const char* limit, const SharedRate& rate,
                     const SharedRate::Refusal& refusal) {
  const std::string who =
      refusal.requesters == 1
          ? absl::StrCat(": this tenant has used its ", rate.per_second(), " a second")
          : absl::StrCat(": this session has used its share of its tenant's ", rate.per_second(),
                         " a second, for which ", refusal.requesters, " ask");
  return absl::ResourceExhaustedError(
      absl::StrCat(limit, who, "; come back in ", refusal.wait.count(), " ms"));
}

}  // namespace

absl::Status Rates::Ask(SessionShares& session, bool keys, bool bytes, MonotonicTime now,
                        TenantCounters& counters) {
  const auto no_keys = keys ? keys_.Ask(session.keys, now) : std::nullopt;
  if (no_keys.has_value()) {
    ++counters.key_rate_refusals;
    return Refused("keys_per_second", keys_, *no_keys);
  }
  const auto no_bytes = bytes ? bytes_.Ask(session.bytes, now) : std::nullopt;
  if (no_bytes.has_value()) {
    ++counters.byte_rate_refusals;
    return Refused("bytes_per_second", bytes_, *no_bytes);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::store_internal
