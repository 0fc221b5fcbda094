#include "client/local/gpu_regions.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr uint32_t kFirstVersion = 4;
constexpr std::chrono::seconds kUnregisterDeadline{5};

local::MessageWriter UnregisterMessage(uint64_t id, const GpuBinding& known) {
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kUnregisterGpuMemory), id);
  writer.Append(local::UnregisterGpuMemory{.registration = known.registration,
                                           .generation = known.generation});
  return writer;
}

// In the background: refused while a call of it is not answered; the session's end does it then.
void SendUnregister(const GpuBinding& known) {
  const LocalSessionPtr session = known.session.lock();
  if (session == nullptr || session->over()) return;
  const uint64_t id = session->NextId();
  local::MessageWriter writer = UnregisterMessage(id, known);
  session->Send(id, writer,
                {.kind = Kind::kUnregisterGpuMemory,
                 .deadline = steady_clock::now() + kUnregisterDeadline,
                 .done = [](absl::StatusOr<LocalSession::Reply>) { return absl::OkStatus(); },
                 .late = nullptr,
                 .copied = nullptr});
}

absl::StatusOr<local::RegisterGpuReply> ReadRegistered(LocalSession::Reply& reply) {
  KVKEEP_ASSIGN_OR_RETURN(const auto said, ReadStruct<local::RegisterGpuReply>(reply));
  if (said.registration == 0 || said.max_runs == 0) {
    return absl::InternalError("local: GPU memory was registered as nothing");
  }
  return said;
}

}  // namespace

// ---------------------------------------------------------------- holds

bool LocalGpuRegion::in_use() {
  if (mark.InChild()) return false;
  MutexLock lock(&mu);
  std::erase_if(left_to, [](const auto& daemon) { return daemon->Ended(); });
  return unanswered > 0 || !left_to.empty();
}

GpuHold::GpuHold(std::shared_ptr<const DaemonProcess> daemon,
                 std::vector<LocalGpuRegionPtr> regions)
    : daemon_(std::move(daemon)), regions_(std::move(regions)) {
  for (const LocalGpuRegionPtr& region : regions_) {
    MutexLock lock(&region->mu);
    ++region->unanswered;
  }
}

GpuHold::~GpuHold() { Let(false); }
void GpuHold::Answered() { Let(true); }

void GpuHold::Let(bool answered) {
  if (let_.exchange(true)) return;
  for (const LocalGpuRegionPtr& region : regions_) {
    MutexLock lock(&region->mu);
    --region->unanswered;
    std::vector<std::shared_ptr<const DaemonProcess>>& left_to = region->left_to;
    if (!answered && std::find(left_to.begin(), left_to.end(), daemon_) == left_to.end()) {
      left_to.push_back(daemon_);
    }
  }
}

// ---------------------------------------------------------------- GpuRegions

absl::StatusOr<std::shared_ptr<const DaemonProcess>> GpuRegions::DaemonOf(
    const LocalSession& session) {
  {
    MutexLock lock(&mu_);
    if (daemon_ != nullptr && daemon_epoch_ == session.epoch()) return daemon_;
  }
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Of(*session.mappings(), watch_));
  MutexLock lock(&mu_);
  daemon_epoch_ = session.epoch();
  daemon_ = daemon;
  return daemon;
}

absl::StatusOr<GpuBinding> GpuRegions::Ask(const LocalSessionPtr& session,
                                           const LocalGpuRegion& region,
                                           LocalSession::Time deadline) {
  if (session->welcome().version < kFirstVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU path: this daemon is too old: it speaks version ",
                     session->welcome().version, " of the local protocol"));
  }
  GpuBinding known = {
      .epoch = session->epoch(), .generation = generations_.fetch_add(1), .session = session};
  KVKEEP_ASSIGN_OR_RETURN(known.daemon, DaemonOf(*session));
  const GpuMemory& memory = region.memory;
  const bool descriptor = memory.kind == GpuMemory::Kind::kDescriptor;
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kRegisterGpuMemory), id);
  writer.Append(
      local::RegisterGpuMemory{.gpu_uuid = memory.gpu_uuid,
                               .handle = memory.handle,
                               .allocation_bytes = memory.allocation_bytes,
                               .offset = memory.offset,
                               .bytes = memory.bytes,
                               .generation = known.generation,
                               .kind = descriptor ? local::kGpuDescriptor : local::kGpuIpcHandle});
  const int fd = memory.descriptor.get();
  // An answer that comes late: the daemon has it until the session ends, or ours is destroyed.
  KVKEEP_ASSIGN_OR_RETURN(
      const local::RegisterGpuReply said,
      client::Ask<local::RegisterGpuReply>(session, Kind::kRegisterGpuMemory, id, writer, deadline,
                                           ReadRegistered,
                                           [known](LocalSession::Reply reply) mutable {
                                             const auto late = ReadRegistered(reply);
                                             if (!late.ok()) return;
                                             known.registration = late->registration;
                                             SendUnregister(known);
                                           },
                                           {&fd, descriptor ? 1u : 0u}));
  known.registration = said.registration;
  known.max_runs = said.max_runs;
  known.max_timeout_ms = said.max_timeout_ms;
  return known;
}

absl::StatusOr<LocalGpuRegionPtr> GpuRegions::Register(const LocalSessionPtr& session,
                                                       GpuMemory memory,
                                                       LocalSession::Time deadline) {
  KVKEEP_RETURN_IF_ERROR(memory.Validate());
  auto region = std::make_shared<LocalGpuRegion>(GpuRegionId(ids_.fetch_add(1)), std::move(memory));
  const absl::StatusOr<GpuBinding> bound = Bind(session, region, deadline);
  if (!bound.ok()) return bound.status();
  MutexLock lock(&mu_);
  absl::erase_if(regions_, [](const auto& known) { return known.second.expired(); });
  regions_[region->id] = region;
  return region;
}

LocalGpuRegionPtr GpuRegions::Find(GpuRegionId id) {
  LocalGpuRegionPtr region;
  {
    MutexLock lock(&mu_);
    const auto found = regions_.find(id);
    if (found != regions_.end()) region = found->second.lock();
  }
  if (region == nullptr) return nullptr;
  MutexLock lock(&region->mu);
  return region->closed ? nullptr : region;
}

bool GpuRegions::IsBound(const LocalSession& session, LocalGpuRegion* region) {
  MutexLock lock(&region->mu);
  return region->now.epoch == session.epoch();
}

absl::StatusOr<GpuBinding> GpuRegions::Bind(const LocalSessionPtr& session,
                                            const LocalGpuRegionPtr& region,
                                            LocalSession::Time deadline) {
  bool again = false;
  {
    MutexLock lock(&region->mu);
    while (true) {
      if (region->closed) return absl::FailedPreconditionError("GPU region: unregistered");
      if (region->now.epoch == session->epoch()) return region->now;
      if (region->refused_epoch == session->epoch()) return region->refused;
      if (!region->binding) break;
      const auto left = deadline - steady_clock::now();
      if (left <= left.zero()) {
        return absl::DeadlineExceededError("GPU region: still being registered");
      }
      region->bound.WaitFor(&region->mu, left);
    }
    region->binding = true;
    again = region->now.epoch != 0 || region->refused_epoch != 0;
  }
  absl::StatusOr<GpuBinding> known = Ask(session, *region, deadline);
  (known.ok() ? (again ? registered_again_ : registered_) : refused_).fetch_add(1);
  GpuBinding abandoned;
  {
    MutexLock lock(&region->mu);
    region->binding = false;
    region->bound.NotifyAll();
    if (known.ok() && !region->closed) {
      region->now = *known;
    } else if (known.ok()) {
      abandoned = *known;  // its owner went away meanwhile
    } else if (!absl::IsDeadlineExceeded(known.status())) {
      region->refused_epoch = session->epoch();
      region->refused = known.status();
    }
  }
  if (abandoned.epoch != 0) SendUnregister(abandoned);
  return known;
}

GpuStats GpuRegions::stats() const {
  return {.registered = registered_,
          .registered_again = registered_again_,
          .refused = refused_,
          .unanswered = unanswered_,
          .bytes_put = bytes_put_,
          .bytes_got = bytes_got_};
}

// ---------------------------------------------------------------- gpu_region.h

GpuRegion::GpuRegion(std::shared_ptr<LocalGpuRegion> region) : region_(std::move(region)) {}
GpuRegion::~GpuRegion() { Leave(); }

GpuRegion& GpuRegion::operator=(GpuRegion&& other) noexcept {
  if (this == &other) return *this;
  Leave();
  region_ = std::move(other.region_);
  return *this;
}

void GpuRegion::Leave() {
  const LocalGpuRegionPtr region = std::move(region_);
  if (region == nullptr || region->mark.InChild()) return;
  GpuBinding known;
  {
    MutexLock lock(&region->mu);
    region->closed = true;
    known = std::exchange(region->now, {});
  }
  if (known.epoch != 0) SendUnregister(known);
}

GpuRegionId GpuRegion::id() const { return region_ == nullptr ? GpuRegionId() : region_->id; }
uint64_t GpuRegion::bytes() const { return region_ == nullptr ? 0 : region_->memory.bytes; }
bool GpuRegion::in_use() const { return region_ != nullptr && region_->in_use(); }

absl::Status GpuRegion::usable() const {
  if (region_ == nullptr || region_->mark.InChild()) {
    return absl::FailedPreconditionError("GPU region: not registered here");
  }
  MutexLock lock(&region_->mu);
  if (region_->closed) return absl::FailedPreconditionError("GPU region: unregistered");
  return region_->refused_epoch > region_->now.epoch ? region_->refused : absl::OkStatus();
}

absl::Status GpuRegion::Unregister(Deadline timeout) {
  if (region_ == nullptr || region_->mark.InChild()) return absl::OkStatus();
  GpuBinding known;
  {
    MutexLock lock(&region_->mu);
    region_->closed = true;
    known = region_->now;
  }
  if (region_->in_use()) {
    return absl::FailedPreconditionError("GPU region: a put or get of it is not answered");
  }
  if (known.epoch == 0) return absl::OkStatus();
  const LocalSessionPtr session = known.session.lock();
  if (session == nullptr || session->over()) {
    if (known.daemon->Ended()) return absl::OkStatus();
    return absl::UnavailableError(
        "GPU region: the session is over, and the daemon's process may still have it open");
  }
  const uint64_t id = session->NextId();
  local::MessageWriter writer = UnregisterMessage(id, known);
  const absl::StatusOr<bool> closed =
      Ask<bool>(session, Kind::kUnregisterGpuMemory, id, writer, steady_clock::now() + timeout,
                [](LocalSession::Reply& reply) -> absl::StatusOr<bool> {
                  if (!reply.body.done())
                    return absl::InternalError("local: a reply of a wrong length");
                  return true;
                });
  if (!closed.ok()) return closed.status();
  MutexLock lock(&region_->mu);
  region_->now = {};
  return absl::OkStatus();
}

}  // namespace kvkeep::client
