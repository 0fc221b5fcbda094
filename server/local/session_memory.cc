#include "server/local/session_memory.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "proto/local/protocol.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

SessionMemory::SessionMemory(std::shared_ptr<const LocalContext> context)
    : context_(std::move(context)) {}

absl::StatusOr<std::shared_ptr<StagingMemory>> SessionMemory::BeginStaging() {
  if (making_staging_) {
    return absl::FailedPreconditionError("staging memory of this session is being made");
  }
  // Only puts share it, and only this thread starts puts, so a count of one does not grow.
  if (staging_.use_count() > 1) {
    return absl::FailedPreconditionError("a put reads the staging memory");
  }
  making_staging_ = true;
  return std::exchange(staging_, nullptr);
}

void SessionMemory::EndStaging(std::shared_ptr<StagingMemory> staging) {
  KVKEEP_CHECK(std::exchange(making_staging_, false));
  staging_ = std::move(staging);
}

absl::StatusOr<uint32_t> SessionMemory::Register(ExpendableFd fd, uint64_t bytes) {
  const LocalLimits& limits = context_->limits;
  if (registered_.size() >= limits.max_registrations) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "registrations: this session has ", limits.max_registrations, ", the most allowed"));
  }
  if (bytes > limits.max_registered_bytes ||
      registered_bytes_ > limits.max_registered_bytes - bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("registered memory: this session has ", registered_bytes_, " bytes, ", bytes,
                     " more are wanted, allowed are at most ", limits.max_registered_bytes,
                     " (max_registered_bytes)"));
  }
  if (next_region_ == 0) return absl::ResourceExhaustedError("region: all numbers were used");
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<RegisteredMemory> memory,
                          RegisteredMemory::Open(context_, std::move(fd), bytes));
  registered_bytes_ += bytes;
  registered_.emplace(next_region_, std::move(memory));
  return next_region_++;
}

absl::Status SessionMemory::Unregister(uint32_t region) {
  const auto found = registered_.find(region);
  if (found == registered_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("region ", region, " is not registered"));
  }
  if (found->second.use_count() > 1) {
    return absl::FailedPreconditionError(absl::StrCat("a put reads region ", region));
  }
  registered_bytes_ -= found->second->bytes();
  registered_.erase(found);
  return absl::OkStatus();
}

std::shared_ptr<const ClientMemory> SessionMemory::Find(uint32_t region) const {
  if (region == local::kStagingRegion) return staging_;
  const auto found = registered_.find(region);
  return found == registered_.end() ? nullptr : found->second;
}

}  // namespace kvkeep
