#include "server/local/peer_memory.h"

#include <algorithm>
#include <utility>

#include "server/local/read_whole.h"
#include "server/sockets/descriptor_reserve.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr uint64_t kDefaultStagingChunks = 32;  // a burst of prefill

}  // namespace

PeerMemory::PeerMemory(std::shared_ptr<const LocalContext> context,
                       std::shared_ptr<PeerSession> session, std::shared_ptr<PeerReplies> replies)
    : context_(std::move(context)),
      session_(std::move(session)),
      replies_(std::move(replies)),
      regions_(context_) {}

StagingWish PeerMemory::WishFor(uint64_t asked) const {
  const LocalLimits& limits = context_->limits;
  const uint64_t chunk = session_->LargestChunk();
  StagingWish wish{.bytes = asked,
                   .chunk_bytes = chunk,
                   .named = asked != 0,
                   .shares = session_->version() >= local::kSharedStagingSince};
  if (!wish.named && wish.shares) {
    // Small chunks need less than the limit for the first staging memory of a session.
    const uint64_t burst = chunk == 0 ? limits.first_staging_bytes : chunk * kDefaultStagingChunks;
    wish.bytes = std::max(std::min(burst, limits.first_staging_bytes), chunk + kBlockBytes);
  } else if (!wish.named) {
    wish.bytes = chunk == 0 ? limits.default_staging_bytes : chunk * kDefaultStagingChunks;
  }
  wish.most_bytes = session_->MostStaging();
  return wish;
}

absl::Status PeerMemory::Staging(const local::Message& message) {
  local::StagingRequest request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "StagingRequest", &request));
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<StagingMemory> old, regions_.BeginStaging());
  if (request.bytes == local::kNoStaging && session_->version() >= local::kSharedStagingSince) {
    regions_.EndStaging(nullptr);  // the last one to know `old` frees its pages
    replies_->Start(Kind::kStaging, message.id).Append(local::StagingReply{.bytes = 0});
    replies_->Send();
    return absl::OkStatus();
  }
  StagingMemory::Done done = [loop = context_->loop, weak = weak_from_this(), id = message.id](
                                 absl::StatusOr<std::shared_ptr<StagingMemory>> made) {
    loop->Post([weak, id, made = std::move(made)]() mutable {
      const std::shared_ptr<PeerMemory> self = weak.lock();
      if (self != nullptr) self->OnStagingMade(id, std::move(made));
    });
  };
  auto make = [context = context_, account = session_->identity().staging,
               wish = WishFor(request.bytes), done = std::move(done)]() mutable {
    StagingMemory::Make(std::move(context), std::move(account), wish, std::move(done));
  };
  if (old == nullptr) {
    make();
  } else {  // its pages are freed first, so that both need not fit
    StagingMemory::GiveUp(std::move(old), std::move(make));
  }
  return absl::OkStatus();
}

void PeerMemory::OnStagingMade(uint64_t id, absl::StatusOr<std::shared_ptr<StagingMemory>> made) {
  if (session_->ended()) return;
  absl::Status status = made.status();
  std::vector<UniqueFd> descriptors(1);
  if (status.ok()) {
    absl::StatusOr<UniqueFd> fd = (*made)->Duplicate();
    status = fd.status();
    if (fd.ok()) descriptors[0] = *std::move(fd);
  }
  const uint64_t bytes = status.ok() ? (*made)->bytes() : 0;
  regions_.EndStaging(status.ok() ? *std::move(made) : nullptr);
  if (!status.ok()) {
    replies_->SendError(Kind::kStaging, id, status);
    return;
  }
  replies_->Start(Kind::kStaging, id).Append(local::StagingReply{.bytes = bytes});
  replies_->Send(std::move(descriptors));
}

absl::Status PeerMemory::Register(local::Message& message) {
  local::RegisterMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "RegisterMemory", &request));
  if (InDescriptorReserve(message.descriptors[0].get())) {
    return absl::ResourceExhaustedError(
        "descriptors: all but the daemon's reserve are in use; raise RLIMIT_NOFILE");
  }
  ExpendableFd fd(std::move(message.descriptors[0]), session_->identity().closes);
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t region, regions_.Register(std::move(fd), request.bytes));
  replies_->Start(Kind::kRegisterMemory, message.id).Append(local::RegisterReply{.region = region});
  replies_->Send();
  return absl::OkStatus();
}

absl::Status PeerMemory::Unregister(const local::Message& message) {
  local::UnregisterMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "UnregisterMemory", &request));
  KVKEEP_RETURN_IF_ERROR(regions_.Unregister(request.region));
  replies_->Start(Kind::kUnregisterMemory, message.id);
  replies_->Send();
  return absl::OkStatus();
}

}  // namespace kvkeep
