// GpuAccount: how much one tenant's sessions use of the GPU path, and the limits. A tenant's part
// of LocalLimits is the same as its part of G2; no tenant can use another's. Thread-safe.
//
// A Take call over a limit returns ResourceExhausted, which names the limit, the tenant's use and
// its part. The caller gives back the amount that it took. One request may exceed the part in
// copies and in bytes that gets hold, as it could otherwise be too large for ever.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/gpu/gpu_path.h"
#include "server/local/limits.h"

namespace kvkeep {

// The GPUs that a tenant's sessions may name, and how.
struct GpuRights {
  bool all = true;
  std::vector<GpuUuid> gpus = {};  // unless all
  // Handles of CUDA IPC are bytes: a client that knows the handle of another process's memory can
  // pass it, and have the daemon read and write that memory. A descriptor can only be passed by a
  // process that has it.
  bool ipc_handles = true;

  // PermissionDenied says what is not allowed.
  absl::Status Check(const GpuUuid& gpu, bool ipc_handle) const;
};

class GpuAccount {
 public:
  struct Most {
    uint64_t registrations = 0;
    uint64_t registered_bytes = 0;
    uint64_t get_bytes = 0;  // of chunks that gets under way hold
    uint64_t copies = 0;     // under way
  };
  // Returns `part` of each of these limits, at least one.
  static Most PartOf(const LocalLimits& limits, double part);

  explicit GpuAccount(const Most& most, GpuRights rights = {})
      : most_(most), rights_(std::move(rights)) {}

  const GpuRights& rights() const { return rights_; }
  absl::Status TakeRegistration(uint64_t bytes);
  void GiveRegistration(uint64_t bytes);
  // Takes any amount if no other get holds bytes.
  absl::Status TakeGet(uint64_t bytes);
  void GiveGet(uint64_t bytes) { get_bytes_.fetch_sub(bytes); }
  // `whose`: the request of the copy. One request at a time may exceed the part, from its first
  // copy over it until EndCopies; it is never refused.
  absl::Status TakeCopy(const void* whose);
  void GiveCopy() { copies_.fetch_sub(1); }
  void EndCopies(const void* whose);

  // Returns how many bytes a further get may hold; without limit if no other get holds any.
  uint64_t get_room() const;
  bool unused() const;

 private:
  const Most most_;
  const GpuRights rights_;
  std::atomic<uint64_t> registrations_{0}, registered_bytes_{0}, get_bytes_{0}, copies_{0};
  std::atomic<const void*> over_copies_{nullptr};  // the request that has more copies than the part
};

// The copies of one request, in its tenant's account. All must have ended when this does.
class GpuRequestCopies {
 public:
  explicit GpuRequestCopies(std::shared_ptr<GpuAccount> account) : account_(std::move(account)) {}
  ~GpuRequestCopies() { account_->EndCopies(this); }
  GpuRequestCopies(const GpuRequestCopies&) = delete;
  GpuRequestCopies& operator=(const GpuRequestCopies&) = delete;

  absl::Status Take() { return account_->TakeCopy(this); }
  void Give() { account_->GiveCopy(); }

 private:
  const std::shared_ptr<GpuAccount> account_;
};

// A registration's part of its tenant's account, for as long as this lives.
class GpuRegistrationHold {
 public:
  // Takes over what TakeRegistration gave.
  GpuRegistrationHold(std::shared_ptr<GpuAccount> account, uint64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}
  ~GpuRegistrationHold() { account_->GiveRegistration(bytes_); }
  GpuRegistrationHold(const GpuRegistrationHold&) = delete;
  GpuRegistrationHold& operator=(const GpuRegistrationHold&) = delete;

  const std::shared_ptr<GpuAccount>& shared_account() const { return account_; }

 private:
  const std::shared_ptr<GpuAccount> account_;
  const uint64_t bytes_;
};

}  // namespace kvkeep
