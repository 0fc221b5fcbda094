#include "tiers/io/io_engine.h"

#include <absl/strings/str_cat.h>

#include <bit>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/io/thread_pool_engine.h"
#include "tiers/io/uring_engine.h"

namespace kvkeep {

absl::Status IoEngineOptions::Validate() const {
  if (ring_entries < 8 || ring_entries > 4096 || !std::has_single_bit(ring_entries)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring_entries: ", ring_entries, " is not a power of two in 8..4096"));
  }
  if (fallback_threads < 1 || fallback_threads > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("fallback_threads: ", fallback_threads, " is not in 1..64"));
  }
  return absl::OkStatus();
}

absl::Status DeviceOptions::Validate() const {
  if (path.empty()) return absl::InvalidArgumentError("path: must not be empty");
  if (max_bytes_out < 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": max_bytes_out: 0 is not allowed"));
  }
  if (depth < 1 || depth > 1024) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": depth: ", depth, " is not in 1..1024"));
  }
  if (max_io_bytes == 0 || max_io_bytes % kBlockBytes != 0 || max_io_bytes > kGiB) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": max_io_bytes: ", max_io_bytes,
                                                   " is not a multiple of ", kBlockBytes, " up to ",
                                                   kGiB));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<IoEngine>> CreateIoEngine(const IoEngineOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  if (options.mode == IoMode::kThreads) return CreateThreadPoolEngine(options, "as configured");
  auto engine = CreateUringEngine(options);
  if (engine.ok() || options.mode == IoMode::kUring) return engine;
  return CreateThreadPoolEngine(options, std::string(engine.status().message()));
}

}  // namespace kvkeep
