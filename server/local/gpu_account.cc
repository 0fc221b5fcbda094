#include "server/local/gpu_account.h"

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

namespace kvkeep {
namespace {

// Takes `more`, or names the limit. `may_exceed` decides from the earlier use whether to exceed the
// part.
absl::Status Take(
    std::atomic<uint64_t>* have, uint64_t more, uint64_t most, const char* what,
    absl::FunctionRef<bool(uint64_t)> may_exceed = [](uint64_t) { return false; }) {
  const uint64_t before = have->fetch_add(more);
  if (before <= most && more <= most - before) return absl::OkStatus();
  if (may_exceed(before)) return absl::OkStatus();
  have->fetch_sub(more);
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": sessions of this tenant have ", before, ", ", more,
                   " more are wanted, its part of the limit of all tenants is ", most,
                   " (as its part of g2.capacity)"));
}

uint64_t Share(double part, uint64_t all) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(part * static_cast<double>(all)));
}

}  // namespace

absl::Status GpuRights::Check(const GpuUuid& gpu, bool ipc_handle) const {
  if (!all && std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) {
    return absl::PermissionDeniedError("this tenant may not use that GPU: gpus in its config");
  }
  if (ipc_handle && !ipc_handles) {
    return absl::PermissionDeniedError(
        "handles of CUDA IPC are accepted from the default tenant only, as they are not bound to "
        "their sender: pass a descriptor (cuMemCreate, cuMemExportToShareableHandle)");
  }
  return absl::OkStatus();
}

GpuAccount::Most GpuAccount::PartOf(const LocalLimits& limits, double part) {
  return {.registrations = Share(part, limits.max_all_gpu_registrations),
          .registered_bytes = Share(part, limits.max_all_gpu_bytes),
          .get_bytes = Share(part, limits.max_gpu_get_bytes),
          .copies = Share(part, limits.max_all_gpu_copies)};
}

absl::Status GpuAccount::TakeRegistration(uint64_t bytes) {
  absl::Status taken = Take(&registrations_, 1, most_.registrations, "registrations of GPU memory");
  if (!taken.ok()) return taken;
  taken = Take(&registered_bytes_, bytes, most_.registered_bytes, "bytes of registered GPU memory");
  if (!taken.ok()) registrations_.fetch_sub(1);
  return taken;
}

void GpuAccount::GiveRegistration(uint64_t bytes) {
  registered_bytes_.fetch_sub(bytes);
  registrations_.fetch_sub(1);
}

absl::Status GpuAccount::TakeGet(uint64_t bytes) {
  return Take(&get_bytes_, bytes, most_.get_bytes, "bytes that gets to GPUs hold",
              [](uint64_t before) { return before == 0; });
}

absl::Status GpuAccount::TakeCopy(const void* whose) {
  return Take(&copies_, 1, most_.copies, "copies of GPU memory under way", [&](uint64_t) {
    const void* over = nullptr;
    return over_copies_.compare_exchange_strong(over, whose) || over == whose;
  });
}

void GpuAccount::EndCopies(const void* whose) {
  (void)over_copies_.compare_exchange_strong(whose, nullptr);
}

uint64_t GpuAccount::get_room() const {
  const uint64_t now = get_bytes_;
  return now == 0 ? UINT64_MAX : most_.get_bytes - std::min(most_.get_bytes, now);
}

bool GpuAccount::unused() const {
  return registrations_ == 0 && registered_bytes_ == 0 && get_bytes_ == 0 && copies_ == 0;
}

}  // namespace kvkeep
