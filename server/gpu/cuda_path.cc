#include "server/gpu/cuda_path.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <future>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

void Add(const GpuDevice::Stats& one, GpuDevice::Stats* sum) {
  for (uint64_t GpuDevice::Stats::*const field :
       {&GpuDevice::Stats::registrations, &GpuDevice::Stats::opened, &GpuDevice::Stats::closed,
        &GpuDevice::Stats::refused_registrations, &GpuDevice::Stats::queued_copies,
        &GpuDevice::Stats::issued_copies, &GpuDevice::Stats::done_copies,
        &GpuDevice::Stats::failed_copies, &GpuDevice::Stats::late_copies,
        &GpuDevice::Stats::abandoned_copies, &GpuDevice::Stats::bytes_to_arena,
        &GpuDevice::Stats::bytes_to_gpu, &GpuDevice::Stats::pieces, &GpuDevice::Stats::submits}) {
    sum->*field += one.*field;
  }
  sum->broken = one.broken;
}

}  // namespace

absl::Status CudaPathOptions::Validate() const {
  KVKEEP_RETURN_IF_ERROR(arena.Validate());
  if (register_timeout.count() <= 0 || fence_timeout.count() <= 0 || max_pending == 0 ||
      max_strikes == 0 || max_runs == 0) {
    return absl::InvalidArgumentError("a limit or timeout of the GPU path is 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GpuPath>> CudaPath::Create(std::unique_ptr<GpuDriver> driver,
                                                          CudaPathOptions options,
                                                          const Clock* clock) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<GpuPath>(new CudaPath(std::move(driver), std::move(options), clock));
}

CudaPath::CudaPath(std::unique_ptr<GpuDriver> driver, CudaPathOptions options, const Clock* clock)
    : driver_(std::move(driver)),
      options_(std::move(options)),
      clock_(clock),
      strikes_(std::make_shared<GpuStrikes>(options_.max_strikes)),
      answers_(std::make_unique<ThreadPool>("kvkeep-gpu-done", 1)),
      pins_(std::make_unique<ThreadPool>("kvkeep-gpu-pin", 1)),
      opener_(std::make_unique<ThreadPool>("kvkeep-gpu-open", 1)) {}

CudaPath::~CudaPath() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(stopped_ && devices_.empty());
}

void CudaPath::Register(const GpuUuid& gpu, GpuMemory memory, RegisterDone done) {
  auto pending = std::make_shared<Pending>();
  pending->done = std::move(done);
  pending->deadline = clock_->Now() + options_.register_timeout;
  {
    MutexLock lock(&mu_);
    // `queued_` also counts late ones.
    if (std::max(pending_.size(), queued_) < options_.max_pending) {
      pending_.push_back(pending);
      ++queued_;
      opener_->Post([this, gpu, memory = std::move(memory), pending]() mutable {
        OpenAndRegister(gpu, std::move(memory), pending);
      });
      return;
    }
  }
  std::move(pending->done)(absl::ResourceExhaustedError(absl::StrCat(
      options_.max_pending, " registrations of GPU memory wait for the driver, the most allowed")));
}

void CudaPath::Answer(const PendingPtr& pending, absl::StatusOr<Registered> answer) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    std::erase(pending_, pending);
  }
  std::move(pending->done)(std::move(answer));
}

void CudaPath::OpenAndRegister(const GpuUuid& gpu, GpuMemory memory, const PendingPtr& pending) {
  {
    MutexLock lock(&mu_);
    --queued_;
  }
  const absl::StatusOr<CudaDevice*> device = DeviceOf(gpu, memory);
  if (!device.ok()) {
    Answer(pending, device.status());
    return;
  }
  (*device)->Register(std::move(memory),
                      [this, device = *device, pending](absl::StatusOr<GpuRegistrationId> id) {
                        if (!id.ok()) {
                          Answer(pending, id.status());
                        } else {
                          Answer(pending, Registered{.device = device, .id = *id});
                        }
                      });
}

absl::StatusOr<CudaDevice*> CudaPath::DeviceOf(const GpuUuid& gpu, const GpuMemory& memory) {
  KVKEEP_RETURN_IF_ERROR(strikes_->Check(memory.tenant));
  {
    MutexLock lock(&mu_);
    CudaDevice* last = nullptr;
    for (const Opened& opened : devices_) {
      if (opened.gpu == gpu) last = opened.device.get();
    }
    if (last != nullptr) {
      const GpuDevice::Stats stats = last->stats();
      if (stats.broken.empty()) return last;
      // Its thread is in a driver call that does not return: another one would not either.
      if (stats.abandoned_copies > 0) {
        return absl::UnavailableError(
            absl::StrCat("this GPU is not used until the daemon starts again: ", stats.broken));
      }
    }
  }
  // A context takes memory of the GPU, so none is made for memory that cannot be opened anyway.
  KVKEEP_RETURN_IF_ERROR(CudaDevice::CheckBeforeOpen(*driver_, gpu, memory));
  return OpenDevice(gpu);
}

absl::StatusOr<CudaDevice*> CudaPath::OpenDevice(const GpuUuid& gpu) {
  CudaDeviceOptions options;
  options.uuid = gpu;
  options.arena = options_.arena;
  options.fence_timeout = options_.fence_timeout;
  options.max_runs = options_.max_runs;
  options.strikes = strikes_;
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaDevice> device,
      CudaDevice::Open(driver_.get(), std::move(options), answers_.get(), clock_));
  CudaDevice* const opened = device.get();
  {
    MutexLock lock(&mu_);
    devices_.push_back({.gpu = gpu, .device = std::move(device)});
  }
  PinBy(opened);
  return opened;
}

// Registers the arena. One registration serves all contexts, and ends with the context that made
// it.
void CudaPath::PinBy(CudaDevice* device) {
  std::shared_ptr<ArenaPinner> old;
  {
    MutexLock lock(&mu_);
    if (pinner_ != nullptr) {
      const GpuDevice::Stats stats = pinned_by_->stats();
      if (stats.broken.empty()) return;
      // If the driver does not return, giving back would not either, and this thread would hang.
      if (stats.abandoned_copies > 0) lost_pinners_.push_back(pinner_);
    }
    old = std::move(pinner_);
  }
  old.reset();  // waits for the segment under way
  auto pinner = std::make_shared<ArenaPinner>(
      driver_.get(), device->device(),
      ArenaPinner::Memory{.segments = options_.arena.segments, .is_whole = options_.arena.is_whole},
      pins_.get());
  MutexLock lock(&mu_);
  pinner_ = std::move(pinner);
  pinned_by_ = device;
}

void CudaPath::KeepForEver(std::shared_ptr<const void> holder) {
  MutexLock lock(&mu_);
  kept_.push_back(std::move(holder));
}

bool CudaPath::Tick() {
  const MonotonicTime now = clock_->Now();
  std::vector<CudaDevice*> devices;
  std::shared_ptr<ArenaPinner> pinner;
  {
    MutexLock lock(&mu_);
    pinner = pinner_;
    // The driver may still open them: they stay unanswered, and limits count them.
    unanswered_ += std::erase_if(
        pending_, [now](const PendingPtr& pending) { return pending->deadline < now; });
    for (const Opened& opened : devices_) devices.push_back(opened.device.get());
  }
  for (CudaDevice* const device : devices) device->Tick();
  if (pinner != nullptr) pinner->Continue();
  return devices.empty();
}

GpuPath::Stats CudaPath::stats() const {
  MutexLock lock(&mu_);
  Stats stats{.on = true,
              .unanswered = unanswered_,
              .kept = kept_.size(),
              .tenants_off = strikes_->tenants_off()};
  for (const Opened& opened : devices_) {
    const GpuDevice::Stats one = opened.device->stats();
    Add(one, &stats.sum);
    ++(one.broken.empty() ? stats.devices : stats.broken);
  }
  if (pinner_ != nullptr) {
    const ArenaPinner::Stats pinned = pinner_->stats();
    stats.pinned_bytes = pinned.pinned_bytes;
    stats.refused_bytes = pinned.refused_bytes;
  }
  return stats;
}

std::string CudaPath::describe() const {
  const Stats now = stats();
  std::string line = absl::StrCat("on, driver of CUDA ", driver_->version() / 1000, ".",
                                  driver_->version() % 1000 / 10, ", ", now.devices,
                                  " GPUs in use, ", now.sum.registrations, " registrations, ",
                                  now.pinned_bytes, " bytes of the arena registered");
  if (now.tenants_off > 0) {
    absl::StrAppend(&line, ", refused to ", now.tenants_off, " tenants that broke contexts");
  }
  if (now.broken > 0) absl::StrAppend(&line, ", ", now.broken, " given up: ", now.sum.broken);
  return line;
}

void CudaPath::CloseAll() {
  std::vector<Opened> devices;
  std::shared_ptr<ArenaPinner> pinner;
  {
    MutexLock lock(&mu_);
    devices.swap(devices_);
    pinner.swap(pinner_);
  }
  devices.clear();  // first, as copies under way need the registered arena
  pinner.reset();
}

bool CudaPath::Stop(std::chrono::nanoseconds timeout) {
  auto closed = std::make_shared<std::promise<void>>();
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    pending_.clear();
  }
  // Runs after the opener's tasks, then on the thread of the answers: no answer names a device that
  // is gone.
  opener_->Post([this, closed] {
    answers_->Post([this, closed] {
      CloseAll();
      closed->set_value();
    });
  });
  if (closed->get_future().wait_for(timeout) == std::future_status::timeout) return false;
  MutexLock lock(&mu_);
  stopped_ = true;
  return kept_.empty() && lost_pinners_.empty();
}

}  // namespace kvkeep
