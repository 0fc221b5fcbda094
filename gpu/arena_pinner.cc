#include "gpu/arena_pinner.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

struct ArenaPinner::State {
  const GpuDriver* driver = nullptr;
  CUdevice device = 0;
  Memory memory;
  Executor* executor = nullptr;

  Mutex mu;
  CondVar idle;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool busy ABSL_GUARDED_BY(mu) = false;  // a segment is at the driver
  bool waits ABSL_GUARDED_BY(mu) = false;  // for the memory of the next one
  size_t next ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::byte*> pinned ABSL_GUARDED_BY(mu);
  Stats stats ABSL_GUARDED_BY(mu);

  // Makes the device's context current, retained until the last registration is given back: with
  // its last user a context takes them along. `before`: what Leave makes current again, as the
  // thread may be an engine's.
  absl::Status Enter(CUcontext* before) {
    *before = nullptr;
    (void)driver->CtxGetCurrent(before);
    CUcontext context = nullptr;
    KVKEEP_RETURN_IF_ERROR(driver->DevicePrimaryCtxRetain(&context, device));
    const absl::Status entered = driver->CtxSetCurrent(context);
    if (!entered.ok()) (void)driver->DevicePrimaryCtxRelease(device);
    return entered;
  }
  void Leave(CUcontext before) {
    (void)driver->CtxSetCurrent(before);
    (void)driver->DevicePrimaryCtxRelease(device);
  }

  absl::Status Register(std::span<std::byte> segment) {
    CUcontext before = nullptr;
    KVKEEP_RETURN_IF_ERROR(Enter(&before));
    const unsigned flags =
        CU_MEMHOSTREGISTER_PORTABLE | (memory.read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
    const absl::Status status =
        driver->MemHostRegister(static_cast<void*>(segment.data()), segment.size(), flags);
    if (!status.ok()) Leave(before);
    return status;
  }

  // Each retained the context once.
  void Unregister(const std::vector<std::byte*>& registered) {
    for (std::byte* const memory : registered) {
      CUcontext before = nullptr;
      if (!Enter(&before).ok()) continue;
      (void)driver->MemHostUnregister(static_cast<void*>(memory));
      (void)driver->DevicePrimaryCtxRelease(device);
      Leave(before);
    }
  }

  void PinOne(const std::shared_ptr<State>& self) {
    size_t number = 0;
    {
      MutexLock lock(&mu);
      if (stopping) return;
      number = next++;
      busy = true;
    }
    if (memory.is_whole != nullptr && !memory.is_whole(number)) {
      MutexLock lock(&mu);
      --next;
      busy = false;
      waits = true;
      idle.NotifyAll();
      return;
    }
    const std::span<std::byte> segment = memory.segments[number];
    const absl::Status status = Register(segment);
    bool more = false;
    {
      MutexLock lock(&mu);
      busy = false;
      if (status.ok()) {
        pinned.push_back(segment.data());
        stats.pinned_bytes += segment.size();
      } else {
        stats.refused_bytes += segment.size();
        stats.first_refusal.Update(status);
      }
      stats.finished = next == memory.segments.size();
      more = !stats.finished && !stopping;
      idle.NotifyAll();
    }
    if (more) executor->Post([self] { self->PinOne(self); });
  }
};

ArenaPinner::ArenaPinner(const GpuDriver* driver, CUdevice device, Memory memory,
                         Executor* executor)
    : state_(std::make_shared<State>()) {
  state_->driver = driver;
  state_->device = device;
  state_->memory = std::move(memory);
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

void ArenaPinner::Continue() {
  {
    MutexLock lock(&state_->mu);
    if (!std::exchange(state_->waits, false)) return;
  }
  state_->executor->Post([state = state_] { state->PinOne(state); });
}

ArenaPinner::Stats ArenaPinner::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

bool ArenaPinner::Covers(std::span<const std::byte> run) const {
  const std::less_equal<const std::byte*> le;
  for (const std::span<std::byte> segment : state_->memory.segments) {
    if (!le(segment.data(), run.data()) ||
        !le(run.data() + run.size(), segment.data() + segment.size())) {
      continue;
    }
    MutexLock lock(&state_->mu);
    return std::find(state_->pinned.begin(), state_->pinned.end(), segment.data()) !=
           state_->pinned.end();
  }
  return false;
}

bool ArenaPinner::AwaitFinished(std::chrono::nanoseconds timeout) const {
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&state_->mu);
  while (!state_->stats.finished) {
    const auto left = give_up - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    state_->idle.WaitFor(&state_->mu, left);
  }
  return true;
}

}  // namespace kvkeep
