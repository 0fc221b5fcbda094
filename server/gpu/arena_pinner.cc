#include "server/gpu/arena_pinner.h"

#include <span>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

struct ArenaPinner::State {
  const GpuDriver* driver = nullptr;
  CUdevice device = 0;
  GpuArena arena;
  Executor* executor = nullptr;

  Mutex mu;
  CondVar idle;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool busy ABSL_GUARDED_BY(mu) = false;  // a segment is at the driver
  size_t next ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::byte*> pinned ABSL_GUARDED_BY(mu);
  Stats stats ABSL_GUARDED_BY(mu);

  // Makes the device's context current, retained until the last registration is given back: with
  // its last user a context takes them along.
  absl::Status Enter() {
    CUcontext context = nullptr;
    KVKEEP_RETURN_IF_ERROR(driver->DevicePrimaryCtxRetain(&context, device));
    const absl::Status entered = driver->CtxSetCurrent(context);
    if (!entered.ok()) (void)driver->DevicePrimaryCtxRelease(device);
    return entered;
  }
  void Leave() {
    (void)driver->CtxSetCurrent(static_cast<CUcontext>(nullptr));
    (void)driver->DevicePrimaryCtxRelease(device);
  }

  absl::Status Register(std::span<std::byte> memory) {
    KVKEEP_RETURN_IF_ERROR(Enter());
    const absl::Status status = driver->MemHostRegister(
        static_cast<void*>(memory.data()), memory.size(), unsigned{CU_MEMHOSTREGISTER_PORTABLE});
    if (!status.ok()) Leave();
    return status;
  }

  // Each retained the context once.
  void Unregister(const std::vector<std::byte*>& registered) {
    for (std::byte* const memory : registered) {
      if (!Enter().ok()) continue;
      (void)driver->MemHostUnregister(static_cast<void*>(memory));
      (void)driver->DevicePrimaryCtxRelease(device);
      Leave();
    }
  }

  void PinOne(const std::shared_ptr<State>& self) {
    size_t segment = 0;
    {
      MutexLock lock(&mu);
      if (stopping) return;
      segment = next++;
      busy = true;
    }
    const std::span<std::byte> memory = arena.segments[segment];
    const absl::Status status = Register(memory);
    bool more = false;
    {
      MutexLock lock(&mu);
      busy = false;
      if (status.ok()) {
        pinned.push_back(memory.data());
        stats.pinned_bytes += memory.size();
      } else {
        stats.refused_bytes += memory.size();
        stats.first_refusal.Update(status);
      }
      stats.finished = next == arena.segments.size();
      more = !stats.finished && !stopping;
      idle.NotifyAll();
    }
    if (more) executor->Post([self] { self->PinOne(self); });
  }
};

ArenaPinner::ArenaPinner(const GpuDriver* driver, CUdevice device, GpuArena arena,
                         Executor* executor)
    : state_(std::make_shared<State>()) {
  state_->driver = driver;
  state_->device = device;
  state_->arena = std::move(arena);
  state_->executor = executor;
  executor->Post([state = state_] { state->PinOne(state); });
}

ArenaPinner::~ArenaPinner() {
  std::vector<std::byte*> pinned;
  {
    MutexLock lock(&state_->mu);
    state_->stopping = true;
    while (state_->busy) state_->idle.Wait(&state_->mu);
    pinned.swap(state_->pinned);
  }
  state_->Unregister(pinned);
}

ArenaPinner::Stats ArenaPinner::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

}  // namespace kvkeep
