#include "client/local/gpu_regions.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr uint32_t kFirstVersion = 4;
constexpr std::chrono::seconds kUnregisterGpuDeadline{5};

absl::StatusOr<local::RegisterGpuReply> ReadRegistered(LocalSession::Reply& reply) {
  KVKEEP_ASSIGN_OR_RETURN(const auto said, ReadStruct<local::RegisterGpuReply>(reply));
  if (said.registration == 0 || said.max_runs == 0) {
    return absl::InternalError("local: GPU memory was registered as nothing");
  }
  return said;
}

// Returns whether the same daemon may accept later what it refused now.
bool MayPass(const absl::Status& refused) {
  return absl::IsResourceExhausted(refused) || absl::IsUnavailable(refused);
}

}  // namespace

local::MessageWriter UnregisterMessage(uint64_t id, const GpuBinding& known) {
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kUnregisterGpuMemory), id);
  writer.Append(local::UnregisterGpuMemory{.registration = known.registration,
                                           .generation = known.generation});
  return writer;
}

void SendUnregister(const GpuBinding& known, GpuAskedPtr asked) {
  const LocalSessionPtr session = known.session.lock();
  if (session == nullptr || session->over()) return;
  const uint64_t id = session->NextId();
  local::MessageWriter writer = UnregisterMessage(id, known);
  session->Send(id, writer,
                {.kind = Kind::kUnregisterGpuMemory,
                 .deadline = steady_clock::now() + kUnregisterGpuDeadline,
                 .done = [](absl::StatusOr<LocalSession::Reply>) { return absl::OkStatus(); },
                 .late = nullptr,
                 .copied =
                     [asked = std::move(asked)] {
                       if (asked != nullptr) asked->Told();
                     }});
}

// ---------------------------------------------------------------- holds

bool LocalGpuRegion::in_use() {
  if (mark.InChild()) return false;
  MutexLock lock(&mu);
  return unanswered > 0 || !left_to.empty();
}

absl::Status LocalGpuRegion::RefusedBy(uint64_t epoch) const {
  const bool refuses = refused_epoch == epoch && steady_clock::now() < ask_again;
  return refuses ? refused : absl::OkStatus();
}

absl::Status LocalGpuRegion::AwaitAnswers(LocalSession::Time deadline) {
  while (binding || asked > 0) {
    const auto left_now = deadline - steady_clock::now();
    if (left_now <= left_now.zero()) {
      return absl::DeadlineExceededError(
          "GPU region: the daemon has not answered to its registration, or to the end of it");
    }
    changed.WaitFor(&mu, left_now);
  }
  return absl::OkStatus();
}

GpuAsked::GpuAsked(std::shared_ptr<const DaemonProcess> daemon, LocalGpuRegionPtr region)
    : daemon_(std::move(daemon)), region_(std::move(region)) {
  MutexLock lock(&region_->mu);
  ++region_->asked;
}

GpuAsked::~GpuAsked() {
  if (region_->mark.InChild()) return;
  MutexLock lock(&region_->mu);
  --region_->asked;
  if (!told_) region_->open_at.Add(daemon_);
  region_->changed.NotifyAll();
}

GpuHold::GpuHold(std::shared_ptr<const DaemonProcess> daemon,
                 std::vector<LocalGpuRegionPtr> regions, std::shared_ptr<GpuUse> use)
    : daemon_(std::move(daemon)), regions_(std::move(regions)), use_(std::move(use)) {
  if (use_ != nullptr) use_->Begin();
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
    if (!answered) region->left_to.Add(daemon_);
  }
  if (use_ != nullptr) use_->End(answered ? nullptr : daemon_);
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
                                           const LocalGpuRegionPtr& region,
                                           LocalSession::Time deadline) {
  if (session->welcome().version < kFirstVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU path: this daemon is too old: it speaks version ",
                     session->welcome().version, " of the local protocol"));
  }
  GpuBinding known = {
      .epoch = session->epoch(), .generation = generations_.fetch_add(1), .session = session};
  KVKEEP_ASSIGN_OR_RETURN(known.daemon, DaemonOf(*session));
  const auto asked = std::make_shared<GpuAsked>(known.daemon, region);
  const GpuMemory& memory = region->memory;
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
  // A registration whose answer comes late is ended at once, in the background.
  KVKEEP_ASSIGN_OR_RETURN(
      const local::RegisterGpuReply said,
      client::Ask<local::RegisterGpuReply>(
          session, Kind::kRegisterGpuMemory, id, writer, deadline, ReadRegistered,
          [known, asked](LocalSession::Reply reply) mutable {
            const auto late = ReadRegistered(reply);
            if (!late.ok()) return;
            known.registration = late->registration;
            asked->AskedAgain();
            SendUnregister(known, std::move(asked));
          },
          {&fd, descriptor ? 1u : 0u}, [asked] { asked->Told(); }));
  known.registration = said.registration;
  known.max_runs = said.max_runs;
  known.max_timeout_ms = said.max_timeout_ms;
  return known;
}

absl::StatusOr<LocalGpuRegionPtr> GpuRegions::Register(const LocalSessionPtr& session,
                                                       GpuMemory memory,
                                                       LocalSession::Time deadline) {
  KVKEEP_RETURN_IF_ERROR(memory.Validate());
  auto region =
      std::make_shared<LocalGpuRegion>(GpuRegionId(ids_.fetch_add(1)), std::move(memory), wait_);
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
      KVKEEP_RETURN_IF_ERROR(region->RefusedBy(session->epoch()));
      if (!region->binding) break;
      const auto left = deadline - steady_clock::now();
      if (left <= left.zero()) {
        return absl::DeadlineExceededError("GPU region: still being registered");
      }
      region->changed.WaitFor(&region->mu, left);
    }
    region->binding = true;
    again = region->now.epoch != 0 || region->refused_epoch != 0;
  }
  absl::StatusOr<GpuBinding> known = Ask(session, region, deadline);
  (known.ok() ? (again ? registered_again_ : registered_) : refused_).fetch_add(1);
  GpuBinding abandoned;
  {
    MutexLock lock(&region->mu);
    region->binding = false;
    region->changed.NotifyAll();
    if (known.ok() && region->left) {
      abandoned = *known;
    } else if (known.ok()) {
      // A process closes an earlier session's memory before a later session's; another process may
      // still be ending in the driver.
      const std::shared_ptr<const DaemonProcess>& before = region->now.daemon;
      if (before != nullptr && !before->IsAlso(*known->daemon)) region->open_at.Add(before);
      region->now = *known;  // even if closed meanwhile: the closer waits for it
      region->backoff.Reset();
      if (region->closed) known = absl::FailedPreconditionError("GPU region: unregistered");
    } else if (!absl::IsDeadlineExceeded(known.status())) {
      region->refused_epoch = session->epoch();
      region->refused = known.status();
      region->ask_again = MayPass(known.status())
                              ? steady_clock::now() + region->backoff.After(Deadline(0))
                              : LocalSession::Time::max();
    }
  }
  if (abandoned.epoch == 0) return known;
  SendUnregister(abandoned, nullptr);
  return absl::FailedPreconditionError("GPU region: unregistered");
}

GpuStats GpuRegions::stats() const {
  return {.registered = registered_,
          .registered_again = registered_again_,
          .refused = refused_,
          .unanswered = unanswered_,
          .bytes_put = bytes_put_,
          .bytes_got = bytes_got_};
}

}  // namespace kvkeep::client
