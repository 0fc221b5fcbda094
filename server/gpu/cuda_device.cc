#include "server/gpu/cuda_device.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/copy_submit.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::StatusOr<CUdevice> FindDevice(const GpuDriver& driver,
                                    const std::array<std::byte, 16>& uuid) {
  int devices = 0;
  KVKEEP_RETURN_IF_ERROR(driver.DeviceGetCount(&devices));
  for (int i = 0; i < devices; ++i) {
    CUdevice device = 0;
    CUuuid found = {};
    KVKEEP_RETURN_IF_ERROR(driver.DeviceGet(&device, i));
    KVKEEP_RETURN_IF_ERROR(driver.DeviceGetUuid(&found, device));
    if (std::memcmp(found.bytes, uuid.data(), uuid.size()) == 0) return device;
  }
  return absl::NotFoundError(absl::StrCat("none of the driver's ", devices,
                                          " devices has the wanted UUID (CUDA_VISIBLE_DEVICES?)"));
}

}  // namespace

absl::Status CudaDeviceOptions::Validate() const {
  KVKEEP_RETURN_IF_ERROR(arena.Validate());
  const auto positive = [](size_t value, const char* name) {
    return value > 0 ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(name, " is 0"));
  };
  KVKEEP_RETURN_IF_ERROR(positive(max_registrations, "max_registrations"));
  KVKEEP_RETURN_IF_ERROR(positive(max_queued_copies, "max_queued_copies"));
  KVKEEP_RETURN_IF_ERROR(positive(max_issued_copies, "max_issued_copies"));
  KVKEEP_RETURN_IF_ERROR(positive(max_runs, "max_runs"));
  KVKEEP_RETURN_IF_ERROR(positive(max_batch, "max_batch"));
  if (max_batch > kMaxBatchCopies) {
    return absl::InvalidArgumentError(absl::StrCat("max_batch: at most ", kMaxBatchCopies));
  }
  KVKEEP_RETURN_IF_ERROR(positive(fence_timeout.count() > 0, "fence_timeout"));
  KVKEEP_RETURN_IF_ERROR(positive(poll_interval.count() > 0, "poll_interval"));
  if (max_poll_interval < poll_interval) {
    return absl::InvalidArgumentError("max_poll_interval: at least poll_interval");
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::CheckBeforeOpen(const GpuDriver& driver,
                                         const std::array<std::byte, 16>& uuid,
                                         const GpuMemory& registering) {
  KVKEEP_RETURN_IF_ERROR(registering.Validate());
  KVKEEP_ASSIGN_OR_RETURN(const CUdevice found, FindDevice(driver, uuid));
  return CheckImportable(driver, found, registering);
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const GpuDriver* driver,
                                                             CudaDeviceOptions options,
                                                             Executor* executor,
                                                             const Clock* clock) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  KVKEEP_ASSIGN_OR_RETURN(const CUdevice found, FindDevice(*driver, options.uuid));
  std::unique_ptr<CudaDevice> device(new CudaDevice(driver, std::move(options), executor, clock));
  device->device_ = found;
  device->thread_ = std::thread([d = device.get()] { d->Run(); });
  absl::Status status;
  {
    MutexLock lock(&device->mu_);
    while (!device->started_) device->work_.Wait(&device->mu_);
    status = device->start_status_;
  }
  KVKEEP_RETURN_IF_ERROR(status);
  return device;
}

CudaDevice::CudaDevice(const GpuDriver* driver, CudaDeviceOptions options, Executor* executor,
                       const Clock* clock)
    : driver_(driver), options_(std::move(options)), executor_(executor), clock_(clock) {}

CudaDevice::~CudaDevice() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    CancelQueued(absl::AbortedError("the GPU path ends"), GpuRegistrationId());
    work_.NotifyAll();
  }
  thread_.join();
}

void CudaDevice::Register(GpuMemory memory, RegisterDone done) {
  const absl::Status valid = memory.Validate();
  MutexLock lock(&mu_);
  if (!valid.ok()) return RefuseRegistration(std::move(done), valid);
  if (!broken_.ok()) return RefuseRegistration(std::move(done), broken_);
  if (registrations_.size() >= options_.max_registrations) {
    return RefuseRegistration(
        std::move(done), absl::ResourceExhaustedError(absl::StrCat(
                             "this GPU has ", registrations_.size(), " registrations, allowed are ",
                             options_.max_registrations)));
  }
  auto registration = std::make_shared<Registration>();
  registration->id = GpuRegistrationId(next_id_++);
  registration->memory = std::move(memory);
  registration->opened = std::move(done);
  registrations_[registration->id.value()] = registration;
  to_open_.push_back(registration);
  work_.NotifyAll();
}

void CudaDevice::RefuseRegistration(RegisterDone done, const absl::Status& status) {
  ++stats_.refused_registrations;
  executor_->Post([done = std::move(done), status]() mutable { std::move(done)(status); });
}

void CudaDevice::Unregister(GpuRegistrationId id, UnregisterDone done) {
  MutexLock lock(&mu_);
  const auto found = registrations_.find(id.value());
  if (found == registrations_.end() || found->second->closing) {
    executor_->Post([done = std::move(done)]() mutable { std::move(done)(); });
    return;
  }
  const RegistrationPtr registration = found->second;
  KVKEEP_CHECK(registration->open);  // no caller has its id before
  registration->closed = std::move(done);
  CancelQueued(absl::AbortedError(absl::StrCat("registration ", id.value(), " was given back")),
               id);
  registration->closing = true;  // from now on the last copy's LetGo closes it
  if (registration->copies == 0) to_close_.push_back(registration);
  work_.NotifyAll();
}

void CudaDevice::Copy(GpuCopy copy, CopyDone done) {
  absl::StatusOr<JobPtr> planned = Plan(&copy);
  MutexLock lock(&mu_);
  if (!planned.ok()) {
    ++stats_.failed_copies;
    executor_->Post([done = std::move(done), status = planned.status()]() mutable {
      std::move(done)({.status = status});
    });
    return;
  }
  const JobPtr job = *std::move(planned);
  job->done = std::move(done);
  // Any of these may have happened since the copy was planned. Its registrations still exist: Plan
  // counted the copy in them, so none is closed before LetGo.
  bool given_back = false;
  for (const GpuRegistrationId id : job->registrations) {
    given_back |= registrations_.at(id.value())->closing;
  }
  if (!broken_.ok()) return End(job, broken_, true);
  if (options_.strikes != nullptr) {
    if (const absl::Status off = options_.strikes->Check(job->tenant); !off.ok()) {
      return End(job, off, true);
    }
  }
  if (given_back) return End(job, absl::AbortedError("a registration was given back"), true);
  if (queued_.size() >= options_.max_queued_copies) {
    return End(job,
               absl::ResourceExhaustedError(absl::StrCat("this GPU has ", queued_.size(),
                                                         " copies waiting, which is the limit")),
               true);
  }
  queued_.push_back(job);
  work_.NotifyAll();
}

// Plans a copy, and holds its registrations from here on; LetGo gives them back.
absl::StatusOr<CudaDevice::JobPtr> CudaDevice::Plan(GpuCopy* copy) {
  auto job = std::make_shared<Job>();
  job->direction = copy->direction;
  job->deadline = copy->deadline;
  absl::flat_hash_map<uint64_t, GpuRange> ranges;
  {
    MutexLock lock(&mu_);
    for (const GpuRun& run : copy->runs) {
      const auto found = registrations_.find(run.registration.value());
      if (found == registrations_.end() || !found->second->open || found->second->closing) continue;
      if (!ranges.try_emplace(run.registration.value(), found->second->range).second) continue;
      ++found->second->copies;
      job->tenant = found->second->memory.tenant;
      job->registrations.push_back(run.registration);
    }
  }
  const CopyPlanLimits limits = {.arena_bytes = options_.arena.bytes(),
                                 .segment_bytes = options_.arena.segment_bytes,
                                 .max_runs = options_.max_runs,
                                 .max_batch = options_.max_batch};
  absl::StatusOr<CopyPlan> plan = CopyPlan::Make(
      copy->runs,
      [&](GpuRegistrationId id) -> const GpuRange* {
        const auto found = ranges.find(id.value());
        return found == ranges.end() ? nullptr : &found->second;
      },
      limits);
  if (!plan.ok()) {
    MutexLock lock(&mu_);
    LetGo(*job);
    return plan.status();
  }
  job->plan = *std::move(plan);
  return job;
}

void CudaDevice::LetGo(const Job& job) {
  for (const GpuRegistrationId id : job.registrations) {
    const auto found = registrations_.find(id.value());
    KVKEEP_CHECK(found != registrations_.end());  // it is not closed while a copy counts in it
    const RegistrationPtr& registration = found->second;
    KVKEEP_CHECK(registration->copies > 0);
    if (--registration->copies == 0 && registration->closing) to_close_.push_back(registration);
  }
  work_.NotifyAll();
}

void CudaDevice::End(const JobPtr& job, const absl::Status& status, bool fenced) {
  if (job->ended) return;
  job->ended = true;
  if (status.ok()) {
    ++stats_.done_copies;
    (job->direction == CopyDirection::kToArena ? stats_.bytes_to_arena : stats_.bytes_to_gpu) +=
        job->plan.bytes();
  } else {
    ++stats_.failed_copies;
  }
  if (fenced) {
    LetGo(*job);
  } else {
    ++stats_.abandoned_copies;
  }
  executor_->Post([done = std::move(job->done), end = CopyEnd{status, fenced}]() mutable {
    std::move(done)(std::move(end));
  });
}

void CudaDevice::CancelQueued(const absl::Status& why, GpuRegistrationId only) {
  std::deque<JobPtr> stay;
  for (const JobPtr& job : queued_) {
    const auto& used = job->registrations;
    if (only == GpuRegistrationId() || std::find(used.begin(), used.end(), only) != used.end()) {
      End(job, why, true);
    } else {
      stay.push_back(job);
    }
  }
  queued_.swap(stay);
}

void CudaDevice::EndQueuedBefore(MonotonicTime now) {
  std::deque<JobPtr> stay;
  for (const JobPtr& job : queued_) {
    if (job->deadline < now) {
      ++stats_.late_copies;
      End(job, absl::DeadlineExceededError("the copy had no turn before its deadline"), true);
    } else {
      stay.push_back(job);
    }
  }
  queued_.swap(stay);
}

void CudaDevice::Tick() {
  const MonotonicTime now = clock_->Now();
  MutexLock lock(&mu_);
  EndQueuedBefore(now);
  for (const JobPtr& job : issued_) {
    if (job->ended || now < job->deadline + 2 * options_.fence_timeout) continue;
    ++stats_.late_copies;
    // The driver's thread may be ending this very copy: whichever thread is first under mu_ tells
    // its end. If a fenced copy is told as unfenced, memory is kept for nothing, which is safe.
    if (broken_.ok()) {
      broken_ = absl::UnavailableError("the GPU's driver does not answer, and could not be reset");
    }
    End(job, absl::DeadlineExceededError("the driver does not answer: the copy is abandoned"),
        false);
  }
  if (!broken_.ok()) CancelQueued(broken_, GpuRegistrationId());
}

GpuDevice::Stats CudaDevice::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.registrations = registrations_.size();
  stats.queued_copies = queued_.size();
  stats.issued_copies = issued_.size();
  stats.broken = std::string(broken_.message());
  return stats;
}

}  // namespace kvkeep
