// The driver thread of CudaDevice: all code that calls the driver.
#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "gpu/copy_submit.h"
#include "server/gpu/cuda_device.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

Submitted SubmitPlan(const GpuDriver& driver, const CopyPlan& plan, CopyDirection direction,
                     const GpuArena& arena, CUstream stream) {
  const DeviceCopyWay way =
      direction == CopyDirection::kToArena ? DeviceCopyWay::kToHost : DeviceCopyWay::kToGpu;
  Submitted all;
  std::vector<DeviceCopy> copies;
  for (size_t i = 0; i < plan.batches() && all.status.ok(); ++i) {
    copies.clear();
    for (const CopyPlan::Piece& piece : plan.batch(i)) {
      copies.push_back(
          {.device = piece.address, .host = arena.At(piece.arena_offset), .bytes = piece.bytes});
    }
    const Submitted batch = SubmitCopies(driver, copies, way, stream);
    all.status = batch.status;
    all.pieces += batch.pieces;
    all.calls += batch.calls;
  }
  return all;
}

}  // namespace

absl::Status CudaDevice::Start() {
  KVKEEP_RETURN_IF_ERROR(driver_->DevicePrimaryCtxRetain(&context_, device_));
  KVKEEP_RETURN_IF_ERROR(driver_->CtxSetCurrent(context_));
  for (CUstream& stream : streams_) {
    // Streams of its own: batches refuse the null stream, and waits then include no other work.
    KVKEEP_RETURN_IF_ERROR(driver_->StreamCreate(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  }
  return absl::OkStatus();
}

void CudaDevice::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-gpu");
  // Otherwise the kernel may wake it 50 us later than poll_interval says, to save power.
  (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  const absl::Status started = Start();
  {
    MutexLock lock(&mu_);
    started_ = true;
    start_status_ = started;
    work_.NotifyAll();
  }
  if (started.ok()) {
    while (WaitForWork()) Work();
  }
  EndWork();
}

bool CudaDevice::MayGo(GpuTenant tenant) const {
  if (options_.strikes == nullptr) return true;
  return std::all_of(issued_.begin(), issued_.end(), [&](const JobPtr& job) {
    return options_.strikes->MayBeBeside(tenant, job->tenant);
  });
}

bool CudaDevice::MayIssue() const {
  if (queued_.empty() || issued_.size() >= options_.max_issued_copies) return false;
  // A registration that waits until no work of other tenants is under way would wait for ever if
  // they went on.
  const auto waits = [this](const RegistrationPtr& other) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !MayGo(other->memory.tenant);
  };
  return MayGo(queued_.front()->tenant) && std::none_of(to_open_.begin(), to_open_.end(), waits) &&
         std::none_of(to_close_.begin(), to_close_.end(), waits);
}

bool CudaDevice::HasWork() const {
  const auto may_go = [this](const RegistrationPtr& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return MayGo(next->memory.tenant);
  };
  return std::any_of(to_open_.begin(), to_open_.end(), may_go) ||
         std::any_of(to_close_.begin(), to_close_.end(), may_go) || MayIssue();
}

std::chrono::nanoseconds CudaDevice::PollInterval() const {
  return std::clamp<std::chrono::nanoseconds>((clock_->Now() - moved_) / 16,
                                              options_.poll_interval, options_.max_poll_interval);
}

// Returns false when it is time to end.
bool CudaDevice::WaitForWork() {
  MutexLock lock(&mu_);
  while (true) {
    if (stopping_ && issued_.empty()) return false;
    if (HasWork()) return true;
    if (!issued_.empty()) {
      work_.WaitFor(&mu_, PollInterval());
      return true;
    }
    work_.Wait(&mu_);
  }
}

void CudaDevice::Work() {
  RegistrationPtr open, close;
  JobPtr job;
  absl::Status broken;
  {
    MutexLock lock(&mu_);
    broken = broken_;
    EndQueuedBefore(clock_->Now());
    close = NextToClose();
    open = NextToOpen();
    // The driver would have a registration that is opened or closed now at the same time as the
    // copy.
    const auto beside = [this](const RegistrationPtr& other) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return other == nullptr || options_.strikes == nullptr || queued_.empty() ||
             options_.strikes->MayBeBeside(other->memory.tenant, queued_.front()->tenant);
    };
    if (beside(close) && beside(open)) job = NextToIssue();
  }
  if (!broken.ok()) GiveUp(broken);  // Tick gave it up while this thread was at the driver
  if (close != nullptr) CloseOne(close);
  if (open != nullptr) OpenOne(open);
  if (job != nullptr) IssueOne(job);
  PollIssued();
}

CudaDevice::RegistrationPtr CudaDevice::NextToClose() {
  for (auto next = to_close_.begin(); next != to_close_.end(); ++next) {
    if (!MayGo((*next)->memory.tenant)) continue;
    RegistrationPtr taken = *next;
    to_close_.erase(next);
    return taken;
  }
  return nullptr;
}

// Handles with the same bytes may be of different memory: for the second one the driver returns the
// mapping that is open already. So another session's handle must be closed first.
bool CudaDevice::Clashes(const Registration& registration, bool* for_good) const {
  if (registration.memory.kind != GpuMemory::Kind::kIpcHandle) return false;
  for (const auto& [id, other] : registrations_) {
    if (!other->open || other->memory.kind != GpuMemory::Kind::kIpcHandle ||
        other->memory.owner == registration.memory.owner ||
        other->memory.handle != registration.memory.handle) {
      continue;
    }
    *for_good = !other->closing;
    return true;
  }
  return false;
}

CudaDevice::RegistrationPtr CudaDevice::NextToOpen() {
  for (size_t turns = to_open_.size(); turns > 0; --turns) {
    RegistrationPtr next = to_open_.front();
    to_open_.pop_front();
    bool for_good = false;
    if (!MayGo(next->memory.tenant)) {
      to_open_.push_back(std::move(next));
      continue;
    }
    if (!Clashes(*next, &for_good)) return next;
    if (for_good) {
      registrations_.erase(next->id.value());
      RefuseRegistration(
          std::move(next->opened),
          absl::AlreadyExistsError("another session has registered a handle of the same bytes"));
    } else {
      to_open_.push_back(std::move(next));  // after the other one is closed
    }
  }
  return nullptr;
}

CudaDevice::JobPtr CudaDevice::NextToIssue() {
  if (!MayIssue()) return nullptr;
  JobPtr next = queued_.front();
  queued_.pop_front();
  issued_.push_back(next);
  return next;
}

void CudaDevice::OpenOne(const RegistrationPtr& registration) {
  const absl::StatusOr<ImportedMemory> imported =
      context_gone_ ? absl::UnavailableError("the GPU was given up on")
                    : ImportMemory(*driver_, device_, registration->memory);
  {
    MutexLock lock(&mu_);
    registration->memory.descriptor.Reset();
    if (imported.ok()) {
      registration->import = *imported;
      registration->range = {.address = imported->base + registration->memory.offset,
                             .bytes = registration->memory.bytes};
      registration->open = true;
      ++stats_.opened;
      executor_->Post([done = std::move(registration->opened), id = registration->id]() mutable {
        std::move(done)(id);
      });
    } else {
      registrations_.erase(registration->id.value());
      RefuseRegistration(std::move(registration->opened), imported.status());
    }
  }
  if (!imported.ok() && BreaksContext(imported.status())) {
    GiveUp(imported.status(), registration->memory.tenant);
  }
}

void CudaDevice::CloseOne(const RegistrationPtr& registration) {
  const absl::Status status =
      context_gone_ ? absl::OkStatus() : CloseMemory(*driver_, registration->import);
  {
    MutexLock lock(&mu_);
    registrations_.erase(registration->id.value());
    ++stats_.closed;
    executor_->Post([done = std::move(registration->closed)]() mutable { std::move(done)(); });
  }
  if (BreaksContext(status)) GiveUp(status, registration->memory.tenant);
}

absl::StatusOr<CUevent> CudaDevice::TakeEvent() {
  if (free_events_.empty()) {
    CUevent event = nullptr;
    KVKEEP_RETURN_IF_ERROR(driver_->EventCreate(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
    return event;
  }
  const CUevent event = free_events_.back();
  free_events_.pop_back();
  return event;
}

void CudaDevice::IssueOne(const JobPtr& job) {
  const CUstream stream = streams_[job->direction == CopyDirection::kToArena ? 0 : 1];
  moved_ = clock_->Now();
  const absl::StatusOr<CUevent> event =
      context_gone_ ? absl::UnavailableError("the GPU was given up on") : TakeEvent();
  Submitted submitted;
  absl::Status recorded = event.status();
  if (event.ok()) {
    job->event = *event;
    submitted = SubmitPlan(*driver_, job->plan, job->direction, options_.arena, stream);
    // Recorded after a refusal too: copies taken before it are under way, and the event says when
    // they end.
    recorded = driver_->EventRecord(job->event, stream);
  }
  absl::Status broken;
  for (const absl::Status* status : {&submitted.status, &recorded}) {
    if (BreaksContext(*status)) broken.Update(*status);
  }
  {
    MutexLock lock(&mu_);
    job->submitted = submitted.status;
    stats_.pieces += submitted.pieces;
    stats_.submits += submitted.calls;
    job->issued = recorded.ok();
    if (!event.ok()) {                 // the driver knows nothing of it
      End(job, event.status(), true);  // no more where the context went meanwhile, with its end
      std::erase(issued_, job);
    }
  }
  if (event.ok() && !recorded.ok()) broken.Update(recorded);  // nothing would tell its end
  if (!broken.ok()) GiveUp(broken, job->tenant);
}

void CudaDevice::PollIssued() {
  std::vector<JobPtr> issued;
  {
    MutexLock lock(&mu_);
    issued = issued_;
    if (!issued.empty()) ++stats_.polls;
  }
  const MonotonicTime now = clock_->Now();
  for (const JobPtr& job : issued) {
    if (context_gone_) return;
    const CUresult result = driver_->raw().EventQuery(job->event);
    if (result == CUDA_ERROR_NOT_READY) {
      if (now >= job->deadline + options_.fence_timeout) {
        return GiveUp(absl::UnavailableError("a copy does not end; the GPU's context was reset"));
      }
      continue;
    }
    if (result != CUDA_SUCCESS) return GiveUp(driver_->ToStatus(result, "cuEventQuery"));
    free_events_.push_back(job->event);
    moved_ = now;
    MutexLock lock(&mu_);
    absl::Status status = job->submitted;
    if (status.ok() && now > job->deadline) {
      status = absl::DeadlineExceededError("the copy ended after its deadline");
      ++stats_.late_copies;
    }
    End(job, status, true);
    std::erase(issued_, job);
  }
}

void CudaDevice::GiveUp(const absl::Status& why, std::optional<GpuTenant> at) {
  if (context_gone_) return;
  const absl::Status unavailable = absl::UnavailableError(why.message());
  {
    MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = unavailable;
    std::vector<GpuTenant> with_the_driver;
    if (at.has_value()) with_the_driver.push_back(*at);
    for (const JobPtr& job : issued_) with_the_driver.push_back(job->tenant);
    if (options_.strikes != nullptr) options_.strikes->NoteBreak(std::move(with_the_driver));
    CancelQueued(broken_, GpuRegistrationId());
  }
  // Nothing is under way once this has returned. It may never return: Tick handles that.
  const absl::Status reset = driver_->DevicePrimaryCtxReset(device_);
  context_gone_ = true;
  MutexLock lock(&mu_);
  for (const JobPtr& job : issued_) End(job, unavailable, reset.ok());
  issued_.clear();
  // The mappings went with the context; holders still give theirs back.
}

void CudaDevice::EndWork() {
  std::vector<RegistrationPtr> open;
  {
    MutexLock lock(&mu_);
    for (const RegistrationPtr& waiting : to_open_) {
      RefuseRegistration(std::move(waiting->opened), absl::AbortedError("the GPU path ends"));
    }
    to_open_.clear();
    for (const auto& [id, registration] : registrations_) {
      if (registration->open && registration->copies == 0) open.push_back(registration);
    }
  }
  if (!context_gone_) {
    for (const RegistrationPtr& registration : open) {
      (void)CloseMemory(*driver_, registration->import);
    }
    for (const CUevent event : free_events_) (void)driver_->EventDestroy(event);
    for (const CUstream stream : streams_) {
      if (stream != nullptr) (void)driver_->StreamDestroy(stream);
    }
  }
  (void)driver_->CtxSetCurrent(static_cast<CUcontext>(nullptr));
  if (context_ != nullptr) (void)driver_->DevicePrimaryCtxRelease(device_);
}

}  // namespace kvkeep
