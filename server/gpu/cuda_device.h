// CudaDevice: a GpuDevice over NVIDIA's driver, with one thread that makes all driver calls.
//
// The thread opens and closes handles, gives copies to one of two streams (one per direction), and
// asks the driver for their events. It alone may wait for the driver; Copy plans on the caller's
// thread, Tick and stats take only the lock. Answers go to options.executor.
//
// When a copy is not through `fence_timeout` after its deadline, or an error breaks the context,
// the device is given up on: its context is reset, which fences all that was under way, and
// everything ends Unavailable. If the driver does not return from the reset either, Tick reports
// the abandoned copies after another `fence_timeout`. A device that was given up on stays so: make
// another. The reset takes all of the context with it, the ArenaPinner's registrations too.
//
// Destroying it cancels what is queued and waits for what the driver has, up to `fence_timeout`,
// then resets. A driver that never returns from a call makes it wait for ever. Callbacks not run by
// then are destroyed uncalled, except for copies: each is told its end.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>
#include <cuda.h>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver.h"
#include "server/gpu/gpu_device.h"
#include "server/gpu/gpu_strikes.h"
#include "server/gpu/imported_memory.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

struct CudaDeviceOptions {
  std::array<std::byte, 16> uuid{};  // the driver's order of devices is not an identity
  GpuArena arena;
  size_t max_registrations = 4096;
  size_t max_queued_copies = 16384;
  size_t max_issued_copies = 64;
  size_t max_runs = 65536;  // of one copy
  size_t max_batch = 4096;  // pieces in one call of the driver
  std::chrono::nanoseconds fence_timeout = std::chrono::seconds(5);
  // The shortest sleep between two polls of copies under way. If nothing has begun or ended for a
  // time, the thread sleeps a sixteenth of that time, up to max_poll_interval: it sees an end late
  // by at most a sixteenth of the wait for it, and does not poll long copies thousands of times.
  std::chrono::nanoseconds poll_interval = std::chrono::microseconds(20);
  std::chrono::nanoseconds max_poll_interval = std::chrono::milliseconds(1);
  // Strikes of all devices, including replaced ones; null: breaks are charged to no tenant.
  std::shared_ptr<GpuStrikes> strikes;

  absl::Status Validate() const;
};

class CudaDevice final : public GpuDevice {
 public:
  // Open takes a context on the device (some hundred MiB of its memory). NotFound: no device has
  // this UUID. `driver`, `executor` and `clock` must outlive it, and the arena's memory too.
  // CheckBeforeOpen tells whether `registering` can be opened on the device at all, as far as that
  // can be told without a context.
  static absl::Status CheckBeforeOpen(const GpuDriver& driver,
                                      const std::array<std::byte, 16>& uuid,
                                      const GpuMemory& registering);
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(const GpuDriver* driver,
                                                          CudaDeviceOptions options,
                                                          Executor* executor, const Clock* clock);
  ~CudaDevice() override;

  void Register(GpuMemory memory, RegisterDone done) override;
  void Unregister(GpuRegistrationId id, UnregisterDone done) override;
  void Copy(GpuCopy copy, CopyDone done) override;
  void Tick() override;
  Stats stats() const override;

  CUdevice device() const { return device_; }

 private:
  struct Registration {
    GpuRegistrationId id;
    GpuMemory memory;
    RegisterDone opened;    // empty once it is open
    ImportedMemory import;  // once it is open
    GpuRange range;
    bool open = false;
    bool closing = false;
    uint64_t copies = 0;  // queued or with the driver
    UnregisterDone closed;
  };
  struct Job {
    CopyDirection direction = CopyDirection::kToArena;
    GpuTenant tenant;  // of its registrations
    CopyPlan plan;
    MonotonicTime deadline{0};
    CopyDone done;
    absl::InlinedVector<GpuRegistrationId, 2> registrations;
    bool issued = false;      // the driver may know of it
    bool ended = false;       // its end was told
    absl::Status submitted;   // not OK: why not all of it was given to the driver
    CUevent event = nullptr;  // the driver thread's
  };
  using JobPtr = std::shared_ptr<Job>;
  using RegistrationPtr = std::shared_ptr<Registration>;

  CudaDevice(const GpuDriver* driver, CudaDeviceOptions options, Executor* executor,
             const Clock* clock);

  // Run on the driver thread, without the lock over driver calls.
  absl::Status Start();
  void Run();
  void Work();
  void OpenOne(const RegistrationPtr& registration);
  void CloseOne(const RegistrationPtr& registration);
  void IssueOne(const JobPtr& job);
  void PollIssued();
  bool WaitForWork();
  std::chrono::nanoseconds PollInterval() const;
  void EndWork();
  absl::StatusOr<CUevent> TakeEvent();
  // Resets the context, so that none of its work is under way; all work ends with `why`. `at`: the
  // tenant whose registration the driver had besides the copies under way, if any.
  void GiveUp(const absl::Status& why, std::optional<GpuTenant> at = std::nullopt);

  // Return the next registration to open or close, or null.
  RegistrationPtr NextToOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RegistrationPtr NextToClose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobPtr NextToIssue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the driver may be given this tenant's work now, beside the work under way.
  bool MayGo(GpuTenant tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayIssue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether another registration prevents opening this handle, and if so, sets whether it
  // is for good.
  bool Clashes(const Registration& registration, bool* for_good) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::StatusOr<JobPtr> Plan(GpuCopy* copy) ABSL_LOCKS_EXCLUDED(mu_);
  void LetGo(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const JobPtr& job, const absl::Status& status, bool fenced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseRegistration(RegisterDone done, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelQueued(const absl::Status& why, GpuRegistrationId only)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndQueuedBefore(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const GpuDriver* const driver_;
  const CudaDeviceOptions options_;
  Executor* const executor_;
  const Clock* const clock_;

  // The driver thread's own.
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::array<CUstream, 2> streams_{};  // by direction
  std::vector<CUevent> free_events_;
  bool context_gone_ = false;
  MonotonicTime moved_{0};  // when a copy last began or ended

  mutable Mutex mu_;
  CondVar work_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status start_status_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);  // not OK: given up on
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint64_t, RegistrationPtr> registrations_ ABSL_GUARDED_BY(mu_);
  std::deque<RegistrationPtr> to_open_ ABSL_GUARDED_BY(mu_);
  std::deque<RegistrationPtr> to_close_ ABSL_GUARDED_BY(mu_);  // no copy uses them any more
  std::deque<JobPtr> queued_ ABSL_GUARDED_BY(mu_);
  std::vector<JobPtr> issued_ ABSL_GUARDED_BY(mu_);  // in the order of issue
  Stats stats_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: runs on all of the above
};

}  // namespace kvkeep
