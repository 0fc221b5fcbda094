// SessionMemory: the memory that one session's puts may name, by region number. One thread; running
// puts keep the memory that they read.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>

#include "server/local/client_memory.h"

namespace kvkeep {

class SessionMemory {
 public:
  explicit SessionMemory(std::shared_ptr<const LocalContext> context);

  // Returns the previous staging memory, perhaps null, so that new memory can be made.
  // FailedPrecondition: a put reads it, or new memory is being made.
  absl::StatusOr<std::shared_ptr<StagingMemory>> BeginStaging();
  // Installs the staging memory that was made; null if that failed.
  void EndStaging(std::shared_ptr<StagingMemory> staging);

  // Returns the number of the new region.
  absl::StatusOr<uint32_t> Register(ExpendableFd fd, uint64_t bytes);
  // InvalidArgument: no such region; FailedPrecondition: a put reads it.
  absl::Status Unregister(uint32_t region);

  // Returns null if there is no such region.
  std::shared_ptr<const ClientMemory> Find(uint32_t region) const;
  std::shared_ptr<const StagingMemory> staging() const { return staging_; }

 private:
  const std::shared_ptr<const LocalContext> context_;
  bool making_staging_ = false;
  std::shared_ptr<StagingMemory> staging_;
  uint32_t next_region_ = 1;
  uint64_t registered_bytes_ = 0;
  absl::flat_hash_map<uint32_t, std::shared_ptr<RegisteredMemory>> registered_;
};

}  // namespace kvkeep
