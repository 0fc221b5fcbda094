// CudaPath: the GpuPath over NVIDIA's driver: CudaDevices, opened as they are needed, and the
// ArenaPinner.
//
// Three threads besides the devices' own: one opens devices, one registers the arena, one runs the
// answers. Devices, broken ones too, are kept until Stop, so that the holder of a registration can
// use its device until then.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/arena_pinner.h"
#include "gpu/driver.h"
#include "server/gpu/cuda_device.h"
#include "server/gpu/gpu_path.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

struct CudaPathOptions {
  GpuArena arena;
  // How long a registration may wait for the driver until it is counted as unanswered.
  std::chrono::nanoseconds register_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds fence_timeout = std::chrono::seconds(5);
  size_t max_pending = 1024;   // registrations that wait and are not late
  size_t max_strikes = 8;      // of a tenant, one for each broken context; then it is refused
  size_t max_runs = 1u << 17;  // of one copy: those of a request, cut where the arena's extents end

  absl::Status Validate() const;
};

class CudaPath final : public GpuPath {
 public:
  static absl::StatusOr<std::unique_ptr<GpuPath>> Create(std::unique_ptr<GpuDriver> driver,
                                                         CudaPathOptions options,
                                                         const Clock* clock);
  // REQUIRES: Stop said true.
  ~CudaPath() override;

  void Register(const GpuUuid& gpu, GpuMemory memory, RegisterDone done) override;
  void KeepForEver(std::shared_ptr<const void> holder) override;
  bool Tick() override;
  Stats stats() const override;
  std::string describe() const override;
  bool Stop(std::chrono::nanoseconds timeout) override;

 private:
  struct Opened {
    GpuUuid gpu{};
    std::unique_ptr<CudaDevice> device;
  };
  struct Pending {
    RegisterDone done;
    MonotonicTime deadline{0};
  };
  using PendingPtr = std::shared_ptr<Pending>;

  CudaPath(std::unique_ptr<GpuDriver> driver, CudaPathOptions options, const Clock* clock);

  // On the opener.
  void OpenAndRegister(const GpuUuid& gpu, GpuMemory memory, const PendingPtr& pending);
  absl::StatusOr<CudaDevice*> DeviceOf(const GpuUuid& gpu, const GpuMemory& memory);
  absl::StatusOr<CudaDevice*> OpenDevice(const GpuUuid& gpu);
  void PinBy(CudaDevice* device);
  void CloseAll();  // on the thread of the answers

  // Does nothing once the path stops.
  void Answer(const PendingPtr& pending, absl::StatusOr<Registered> answer);

  const std::unique_ptr<GpuDriver> driver_;
  const CudaPathOptions options_;
  const Clock* const clock_;
  const std::shared_ptr<GpuStrikes> strikes_;

  mutable Mutex mu_;
  std::vector<Opened> devices_ ABSL_GUARDED_BY(mu_);  // the last one of a GPU is in use
  std::shared_ptr<ArenaPinner> pinner_ ABSL_GUARDED_BY(mu_);
  const CudaDevice* pinned_by_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<PendingPtr> pending_ ABSL_GUARDED_BY(mu_);
  size_t queued_ ABSL_GUARDED_BY(mu_) = 0;  // for the opener
  std::vector<std::shared_ptr<const void>> kept_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<ArenaPinner>> lost_pinners_ ABSL_GUARDED_BY(mu_);  // of hung devices
  uint64_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  // Destroyed first, from the last to the first: what they run uses all of the above.
  std::unique_ptr<ThreadPool> answers_, pins_, opener_;
};

}  // namespace kvkeep
