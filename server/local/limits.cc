#include "server/local/limits.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace kvkeep {

std::chrono::milliseconds LocalLimits::GpuTimeout(uint32_t asked_ms) const {
  if (asked_ms == 0) return max_gpu_timeout;
  return std::min(max_gpu_timeout, std::chrono::milliseconds(asked_ms));
}

absl::Status LocalLimits::Validate() const {
  const auto at_least_one = [](const char* name, uint64_t value) {
    if (value > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " is 0, at least 1"));
  };
  for (const absl::Status& status :
       {at_least_one("max_connections", max_connections),
        at_least_one("max_puts_in_flight", max_puts_in_flight),
        at_least_one("max_put_chunks", max_put_chunks), at_least_one("max_put_runs", max_put_runs),
        at_least_one("max_registered_bytes", max_registered_bytes),
        at_least_one("max_staging_bytes", max_staging_bytes),
        at_least_one("default_staging_bytes", default_staging_bytes),
        at_least_one("first_staging_bytes", first_staging_bytes),
        at_least_one("max_gpu_registrations", max_gpu_registrations),
        at_least_one("max_gpu_bytes", max_gpu_bytes),
        at_least_one("max_all_gpu_registrations", max_all_gpu_registrations),
        at_least_one("max_all_gpu_bytes", max_all_gpu_bytes),
        at_least_one("max_all_gpu_copies", max_all_gpu_copies),
        at_least_one("max_gpu_timeout", static_cast<uint64_t>(max_gpu_timeout.count())),
        at_least_one("grace", static_cast<uint64_t>(grace.count())),
        at_least_one("handshake_timeout", static_cast<uint64_t>(handshake_timeout.count()))}) {
    if (!status.ok()) return status;
  }
  if (max_message_bytes < kLeastMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_message_bytes is ", max_message_bytes,
                                                   ", at least ", kLeastMessageBytes));
  }
  // The reply to a put is one message: an answer and a short text for each chunk.
  constexpr uint32_t kMostPutChunks = 8192;
  if (max_put_chunks > kMostPutChunks) {
    return absl::InvalidArgumentError(absl::StrCat("max_put_chunks is ", max_put_chunks,
                                                   ", allowed are at most ", kMostPutChunks));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
