// DeviceRig: a CudaDevice on the fake driver, with an arena on the heap, a clock that a test moves,
// and one thread for the answers. Waits are for answers, not for times.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/arena_pinner.h"
#include "server/gpu/cuda_device.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/shared_clock.h"
#include "tests/gpu/exporter.h"
#include "tests/gpu/pattern.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/units.h"

namespace kvkeep {

// The result of a callback, given once.
template <typename T>
class Answer {
 public:
  // The callback. It may outlive this object.
  auto Callback() {
    return [state = state_](T value) {
      MutexLock lock(&state->mu);
      ++state->times;
      state->value.emplace(std::move(value));
      state->came.NotifyAll();
    };
  }
  T Await() {
    MutexLock lock(&state_->mu);
    while (!state_->value.has_value()) state_->came.Wait(&state_->mu);
    return *state_->value;
  }
  bool ComesWithin(std::chrono::nanoseconds patience) {
    MutexLock lock(&state_->mu);
    if (!state_->value.has_value()) state_->came.WaitFor(&state_->mu, patience);
    return state_->value.has_value();
  }
  int times() const {
    MutexLock lock(&state_->mu);
    return state_->times;
  }

 private:
  struct State {
    Mutex mu;
    CondVar came;
    std::optional<T> value ABSL_GUARDED_BY(mu);
    int times ABSL_GUARDED_BY(mu) = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class DeviceRig {
 public:
  static constexpr uint64_t kSegment = 4 * kMiB;
  static constexpr std::chrono::seconds kInTime{10};  // a deadline, with a clock that stands still

  explicit DeviceRig(const std::string& settings = "", CudaDeviceOptions options = {})
      : memory_(3 * kSegment) {
    fake_.Set(settings);
    absl::StatusOr<std::unique_ptr<GpuDriver>> driver =
        GpuDriver::Load({.library = FakeCuda::kLibrary});
    REQUIRE(driver.status() == absl::OkStatus());
    driver_ = *std::move(driver);
    for (uint64_t i = 0; i < 3; ++i) {
      options.arena.segments.push_back(std::span(memory_).subspan(i * kSegment, kSegment));
    }
    options.arena.segment_bytes = kSegment;
    CUuuid uuid = {};
    REQUIRE(driver_->DeviceGetUuid(&uuid, 0).ok());
    std::memcpy(options.uuid.data(), uuid.bytes, options.uuid.size());
    options_ = options;
    absl::StatusOr<std::unique_ptr<CudaDevice>> device =
        CudaDevice::Open(driver_.get(), options, &executor_, &clock_);
    REQUIRE(device.status() == absl::OkStatus());
    device_ = *std::move(device);
  }

  FakeCuda& fake() { return fake_; }
  const GpuDriver& driver() const { return *driver_; }
  CudaDevice& device() { return *device_; }
  void DestroyDevice() { device_.reset(); }
  SharedClock& clock() { return clock_; }
  Executor* executor() { return &executor_; }
  const CudaDeviceOptions& options() const { return options_; }
  std::span<std::byte> arena() { return memory_; }
  MonotonicTime deadline() const { return clock_.Now() + kInTime; }

  static GpuMemory Of(const CUipcMemHandle& handle, uint64_t bytes, uint64_t owner = 1) {
    GpuMemory memory;
    std::memcpy(memory.handle.data(), handle.reserved, memory.handle.size());
    memory.allocation_bytes = memory.bytes = bytes;
    memory.owner = GpuOwner(owner);
    return memory;
  }
  static GpuMemory Of(UniqueFd descriptor, uint64_t bytes) {
    GpuMemory memory;
    memory.kind = GpuMemory::Kind::kDescriptor;
    memory.descriptor = std::move(descriptor);
    memory.allocation_bytes = memory.bytes = bytes;
    return memory;
  }

  absl::StatusOr<GpuRegistrationId> Register(GpuMemory memory) {
    Answer<absl::StatusOr<GpuRegistrationId>> answer;
    device_->Register(std::move(memory), answer.Callback());
    return answer.Await();
  }
  GpuRegistrationId MustRegister(GpuMemory memory) {
    const absl::StatusOr<GpuRegistrationId> id = Register(std::move(memory));
    REQUIRE(id.status() == absl::OkStatus());
    return *id;
  }
  void Unregister(GpuRegistrationId id) {
    Answer<bool> closed;
    device_->Unregister(id, [callback = closed.Callback()]() mutable { callback(true); });
    closed.Await();
  }
  Answer<CopyEnd> Start(CopyDirection direction, std::vector<GpuRun> runs) {
    Answer<CopyEnd> answer;
    device_->Copy({.direction = direction, .runs = std::move(runs), .deadline = deadline()},
                  answer.Callback());
    return answer;
  }
  absl::Status Copy(CopyDirection direction, std::vector<GpuRun> runs) {
    const CopyEnd end = Start(direction, std::move(runs)).Await();
    CHECK(end.fenced);
    return end.status;
  }
  // Waits until the driver thread has given this many copies to the driver.
  void AwaitIssued(uint64_t copies) {
    while (device_->stats().issued_copies < copies) std::this_thread::yield();
  }
  bool ArenaHolds(uint64_t offset, const std::vector<std::byte>& bytes) const {
    return std::equal(bytes.begin(), bytes.end(), memory_.begin() + static_cast<ptrdiff_t>(offset));
  }
  void FillArena(uint64_t offset, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<ptrdiff_t>(offset));
  }

 private:
  FakeCuda fake_;
  std::vector<std::byte> memory_;
  SharedClock clock_;
  ThreadPool executor_{"gpu-answers", 1};
  std::unique_ptr<GpuDriver> driver_;
  CudaDeviceOptions options_;
  std::unique_ptr<CudaDevice> device_;
};

// Registers the rig's arena with the driver, like ArenaPinner: the driver thread then does not wait
// for each copy in the call that begins it.
class ArenaRegistered {
 public:
  explicit ArenaRegistered(DeviceRig& rig)
      : pinner_(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                rig.executor()) {
    while (!pinner_.stats().finished) std::this_thread::yield();
    REQUIRE(pinner_.stats().pinned_bytes == rig.arena().size());
  }

 private:
  ArenaPinner pinner_;
};

}  // namespace kvkeep
