// GpuRegion (client/gpu/gpu_region.h): the owner's side of a region.
#include "client/gpu/gpu_region.h"

#include <utility>

#include "client/local/gpu_regions.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

absl::Status SessionIsOver() {
  return absl::UnavailableError(
      "GPU region: the session is over, and the daemon's process may still have it open");
}

// Returns OK if every daemon that may have it open, and was not asked to close it, has ended.
absl::Status MayBeOpen(LocalGpuRegion* region) {
  MutexLock lock(&region->mu);
  return region->open_at.empty() ? absl::OkStatus() : SessionIsOver();
}

// Returns when the daemon has closed it; an answer that comes later counts too.
absl::Status CloseAt(const LocalSessionPtr& session, const LocalGpuRegionPtr& region,
                     const GpuBinding& known, LocalSession::Time deadline) {
  const auto asked = std::make_shared<GpuAsked>(known.daemon, region);
  const auto closed = [region, generation = known.generation] {
    MutexLock lock(&region->mu);
    if (region->now.generation == generation) region->now = {};
  };
  const auto told = [asked, region, generation = known.generation] {
    asked->Told();
    MutexLock lock(&region->mu);
    if (region->ending == generation) region->ending = 0;
  };
  {
    MutexLock lock(&region->mu);
    region->ending = known.generation;
  }
  const uint64_t id = session->NextId();
  local::MessageWriter writer = UnregisterMessage(id, known);
  return Ask<bool>(
             session, Kind::kUnregisterGpuMemory, id, writer, deadline,
             [&closed](LocalSession::Reply& reply) -> absl::StatusOr<bool> {
               if (!reply.body.done()) {
                 return absl::InternalError("local: a reply of a wrong length");
               }
               closed();
               return true;
             },
             [closed](LocalSession::Reply) { closed(); }, {}, told)
      .status();
}

}  // namespace

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
    region->closed = region->left = true;
    known = std::exchange(region->now, {});
    if (known.generation == region->ending) known = {};
  }
  if (known.epoch != 0) SendUnregister(known, nullptr);
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
  const uint64_t refused = region_->refused_epoch;
  return refused > region_->now.epoch ? region_->RefusedBy(refused) : absl::OkStatus();
}

absl::Status GpuRegion::Unregister(Deadline timeout) {
  if (region_ == nullptr || region_->mark.InChild()) return absl::OkStatus();
  const LocalSession::Time deadline = steady_clock::now() + timeout;
  GpuBinding known;
  {
    MutexLock lock(&region_->mu);
    region_->closed = true;
    // Wait for a registration that is under way, to close it too, and for the answers to earlier
    // requests.
    KVKEEP_RETURN_IF_ERROR(region_->AwaitAnswers(deadline));
    known = region_->now;
  }
  if (region_->in_use()) {
    return absl::FailedPreconditionError("GPU region: a put or get of it is not answered");
  }
  KVKEEP_RETURN_IF_ERROR(MayBeOpen(region_.get()));
  if (known.epoch == 0) return absl::OkStatus();
  const LocalSessionPtr session = known.session.lock();
  if (session == nullptr || session->over()) {
    return known.daemon->Ended() ? absl::OkStatus() : SessionIsOver();
  }
  return CloseAt(session, region_, known, deadline);
}

}  // namespace kvkeep::client
