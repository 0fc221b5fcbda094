#include "server/local/peer_gpu.h"

#include <cstring>
#include <utility>

#include "server/local/read_whole.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using local::Kind;

GpuMemory ToGpuMemory(const local::RegisterGpuMemory& request, ExpendableFd descriptor,
                      const PeerIdentity& identity) {
  GpuMemory memory;
  static_assert(sizeof(request.handle) == GpuMemory::kHandleBytes);
  std::memcpy(memory.handle.data(), request.handle.data(), memory.handle.size());
  if (request.kind == local::kGpuDescriptor) {
    memory.kind = GpuMemory::Kind::kDescriptor;
    memory.descriptor = std::move(descriptor);
  }
  memory.allocation_bytes = request.allocation_bytes;
  memory.offset = request.offset;
  memory.bytes = request.bytes;
  memory.owner = identity.gpu_owner;
  memory.tenant = GpuTenant(identity.tenant.value());
  memory.process = identity.process;
  return memory;
}

}  // namespace

PeerGpu::PeerGpu(std::shared_ptr<const LocalContext> context, std::shared_ptr<PeerSession> session,
                 std::shared_ptr<PeerReplies> replies)
    : context_(std::move(context)),
      session_(std::move(session)),
      replies_(std::move(replies)),
      regions_(context_, session_->identity().gpu) {}

absl::Status PeerGpu::Register(local::Message& message) {
  local::RegisterGpuMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "RegisterGpuMemory", &request));
  if (context_->gpu == nullptr) {
    return absl::FailedPreconditionError("the GPU path of this daemon is off");
  }
  KVKEEP_ASSIGN_OR_RETURN(SessionGpu::Begun begun,
                          regions_.Begin(request, message.descriptors.size()));
  ExpendableFd descriptor;
  if (!message.descriptors.empty()) {
    descriptor = ExpendableFd(std::move(message.descriptors[0]), session_->identity().closes);
  }
  GpuUuid gpu;
  std::memcpy(gpu.data(), request.gpu_uuid.data(), gpu.size());
  context_->gpu->Register(
      gpu, ToGpuMemory(request, std::move(descriptor), session_->identity()),
      [context = context_, weak = weak_from_this(), number = begun.number, id = message.id, request,
       hold = std::move(begun.hold)](absl::StatusOr<GpuPath::Registered> registered) mutable {
        // Made here, so that dropping it, even by a loop that has ended, gives the memory back.
        GpuRegionPtr region;
        if (registered.ok()) {
          region = std::make_shared<GpuRegion>(context, *registered, request, std::move(hold));
        }
        hold.reset();
        context->loop->Post(
            [weak, number, id, status = registered.status(), region = std::move(region)]() mutable {
              const std::shared_ptr<PeerGpu> self = weak.lock();
              if (self != nullptr) self->OnRegistered(id, number, status, std::move(region));
            });
      });
  return absl::OkStatus();
}

void PeerGpu::OnRegistered(uint64_t id, uint32_t number, const absl::Status& status,
                           GpuRegionPtr region) {
  if (session_->ended()) return;
  if (session_->revoked()) {
    replies_->SendError(Kind::kRegisterGpuMemory, id,
                        absl::FailedPreconditionError("the session was revoked meanwhile"));
    return;
  }
  regions_.End(number, std::move(region));
  if (!status.ok()) {
    context_->counters->gpu_refusals.fetch_add(1, std::memory_order_relaxed);
    replies_->SendError(Kind::kRegisterGpuMemory, id, status);
    return;
  }
  const LocalLimits& limits = context_->limits;
  replies_->Start(Kind::kRegisterGpuMemory, id)
      .Append(local::RegisterGpuReply{
          .registration = number,
          .max_runs = limits.max_put_runs,
          .max_bytes = limits.max_gpu_bytes,
          .max_registrations = limits.max_gpu_registrations,
          .max_timeout_ms = static_cast<uint32_t>(limits.max_gpu_timeout.count())});
  replies_->Send();
}

absl::Status PeerGpu::Unregister(const local::Message& message) {
  local::UnregisterGpuMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "UnregisterGpuMemory", &request));
  KVKEEP_ASSIGN_OR_RETURN(const GpuRegionPtr region,
                          regions_.Take(request.registration, request.generation));
  region->Close([loop = context_->loop, weak = weak_from_this(), id = message.id] {
    loop->Post([weak, id] {
      if (const std::shared_ptr<PeerGpu> self = weak.lock()) self->OnUnregistered(id);
    });
  });
  return absl::OkStatus();
}

void PeerGpu::OnUnregistered(uint64_t id) {
  if (session_->ended()) return;
  replies_->Start(Kind::kUnregisterGpuMemory, id);
  replies_->Send();
}

absl::Status PeerGpu::Get(const local::Message& message) {
  const auto skips = session_->version() >= local::kSkippedBytesSince ? GpuRuns::Skips::kAllowed
                                                                      : GpuRuns::Skips::kNever;
  KVKEEP_ASSIGN_OR_RETURN(GpuGetPlan plan,
                          GpuGetPlan::Parse(message.body, context_->limits, regions_, skips));
  KVKEEP_RETURN_IF_ERROR(session_->PartsOf(plan.ns).status());
  KVKEEP_ASSIGN_OR_RETURN(MessageHold hold, session_->HoldFor(message.body.size()));
  const uint64_t number = next_number_++;
  auto get = std::make_shared<GpuGet>(context_, std::move(plan), [weak = weak_from_this(), number] {
    const std::shared_ptr<PeerGpu> self = weak.lock();
    if (self != nullptr) self->OnGetDone(number);
  });
  KVKEEP_RETURN_IF_ERROR(get->Start(session_->token()));
  gets_.emplace(number, Getting{.id = message.id,
                                .began = replies_->began(),
                                .held = std::move(hold),
                                .get = std::move(get)});
  return absl::OkStatus();
}

void PeerGpu::OnGetDone(uint64_t number) {
  const auto found = gets_.find(number);
  if (found == gets_.end()) return;  // the connection ended
  const Getting job = std::move(found->second);
  gets_.erase(found);
  job.get->AppendAnswers(&replies_->Start(Kind::kGetToGpu, job.id));
  replies_->Send();
  replies_->NoteEnd(Operation::kGet, absl::StatusCode::kOk, job.began, job.get->chunks());
}

void PeerGpu::Cancel() {
  for (const auto& [number, job] : gets_) job.get->Cancel();
  regions_.Clear();
}

}  // namespace kvkeep
