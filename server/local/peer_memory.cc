// LocalPeer: the client's memory, and the puts that are read from it.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "server/local/peer.h"
#include "server/local/read_whole.h"
#include "server/sockets/descriptor_reserve.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr uint64_t kDefaultStagingChunks = 32;  // a burst of prefill
// How long a put waits for space that others hold. With the tick at which that is looked at, and
// the client's own part, it is answered within a second.
constexpr std::chrono::milliseconds kMostWait{650};

}  // namespace

StagingWish LocalPeer::WishFor(uint64_t asked) const {
  const LocalLimits& limits = context_->limits;
  const uint64_t chunk = session_->LargestChunk();
  StagingWish wish{.bytes = asked,
                   .chunk_bytes = chunk,
                   .named = asked != 0,
                   .shares = session_->version() >= local::kSharedStagingSince};
  if (!wish.named && wish.shares) {
    // Chunks that are small need less than the most that a session begins with.
    const uint64_t burst = chunk == 0 ? limits.first_staging_bytes : chunk * kDefaultStagingChunks;
    wish.bytes = std::max(std::min(burst, limits.first_staging_bytes), chunk + kBlockBytes);
  } else if (!wish.named) {
    wish.bytes = chunk == 0 ? limits.default_staging_bytes : chunk * kDefaultStagingChunks;
  }
  wish.most_bytes = session_->MostStaging();
  return wish;
}

absl::Status LocalPeer::Staging(const local::Message& message) {
  local::StagingRequest request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "StagingRequest", &request));
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<StagingMemory> old, memory_.BeginStaging());
  if (request.bytes == local::kNoStaging && session_->version() >= local::kSharedStagingSince) {
    memory_.EndStaging(nullptr);  // the last one to know `old` frees its pages
    replies_->Start(Kind::kStaging, message.id).Append(local::StagingReply{.bytes = 0});
    replies_->Send();
    return absl::OkStatus();
  }
  StagingMemory::Done done = [loop = context_->loop, weak = weak_from_this(), id = message.id](
                                 absl::StatusOr<std::shared_ptr<StagingMemory>> made) {
    loop->Post([weak, id, made = std::move(made)]() mutable {
      const std::shared_ptr<LocalPeer> self = weak.lock();
      if (self != nullptr) self->OnStagingMade(id, std::move(made));
    });
  };
  auto make = [context = context_, account = session_->identity().staging,
               wish = WishFor(request.bytes), done = std::move(done)]() mutable {
    StagingMemory::Make(std::move(context), std::move(account), wish, std::move(done));
  };
  if (old == nullptr) {
    make();
  } else {  // first its pages, so that both need not fit
    StagingMemory::GiveUp(std::move(old), std::move(make));
  }
  return absl::OkStatus();
}

void LocalPeer::OnStagingMade(uint64_t id, absl::StatusOr<std::shared_ptr<StagingMemory>> made) {
  if (session_->ended()) return;
  absl::Status status = made.status();
  std::vector<UniqueFd> descriptors(1);
  if (status.ok()) {
    absl::StatusOr<UniqueFd> fd = (*made)->Duplicate();
    status = fd.status();
    if (fd.ok()) descriptors[0] = *std::move(fd);
  }
  const uint64_t bytes = status.ok() ? (*made)->bytes() : 0;
  memory_.EndStaging(status.ok() ? *std::move(made) : nullptr);
  if (!status.ok()) {
    replies_->SendError(Kind::kStaging, id, status);
    return;
  }
  replies_->Start(Kind::kStaging, id).Append(local::StagingReply{.bytes = bytes});
  replies_->Send(std::move(descriptors));
}

absl::Status LocalPeer::Register(local::Message& message) {
  local::RegisterMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "RegisterMemory", &request));
  if (InDescriptorReserve(message.descriptors[0].get())) {
    return absl::ResourceExhaustedError(
        "descriptors: all but the daemon's reserve are in use; raise RLIMIT_NOFILE");
  }
  ExpendableFd fd(std::move(message.descriptors[0]), session_->identity().closes);
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t region, memory_.Register(std::move(fd), request.bytes));
  replies_->Start(Kind::kRegisterMemory, message.id).Append(local::RegisterReply{.region = region});
  replies_->Send();
  return absl::OkStatus();
}

absl::Status LocalPeer::Unregister(const local::Message& message) {
  local::UnregisterMemory request;
  KVKEEP_RETURN_IF_ERROR(ReadWhole(message, "UnregisterMemory", &request));
  KVKEEP_RETURN_IF_ERROR(memory_.Unregister(request.region));
  replies_->Start(Kind::kUnregisterMemory, message.id);
  replies_->Send();
  return absl::OkStatus();
}

absl::Status LocalPeer::Put(const local::Message& message) {
  const auto kind = static_cast<Kind>(message.kind);
  const uint64_t id = message.id;
  KVKEEP_ASSIGN_OR_RETURN(PutPlan plan,
                          PutPlan::Parse(kind, message.body, context_->limits, memory_, gpu_));
  KVKEEP_ASSIGN_OR_RETURN(MessageHold hold, session_->HoldFor(message.body.size()));
  const uint64_t number = next_job_++;
  const bool early = plan.gpu() != nullptr && session_->version() >= local::kDeadlinesSince;
  const SaysCopied tells = early ? SaysCopied::kOnceFetched : SaysCopied::kIfDurable;
  jobs_[number] = {
      .kind = kind,
      .id = id,
      .began = replies_->began(),
      .held = std::make_shared<MessageHold>(std::move(hold)),
      .put = std::make_shared<PutJob>(context_, std::move(plan), PutCallbacks(number, id, tells))};
  waiting_.push_back(number);
  AdvancePuts();
  return absl::OkStatus();
}

void LocalPeer::TellCopied(uint64_t id) {
  if (!session_->open()) return;
  replies_->StartBare(Kind::kPutCopied, id);
  replies_->Send();
}

PutJob::Callbacks LocalPeer::PutCallbacks(uint64_t number, uint64_t id, SaysCopied tells) {
  const auto more = [weak = weak_from_this(), number] {
    if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->OnRoundOver(number);
  };
  std::function<void()> fetched;
  if (tells == SaysCopied::kOnceFetched) {
    fetched = [weak = weak_from_this(), id] {
      if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->TellCopied(id);
    };
  }
  const auto copied = [weak = weak_from_this(), id, number, tells] {
    const std::shared_ptr<LocalPeer> self = weak.lock();
    if (self == nullptr) return;
    if (tells == SaysCopied::kIfDurable) self->TellCopied(id);
    self->OnRoundOver(number);
  };
  const auto done = [weak = weak_from_this(), number](const PutJob& ended) {
    if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->OnPutDone(number, ended);
  };
  return {.more = more, .fetched = std::move(fetched), .copied = copied, .done = done};
}

void LocalPeer::AdvancePuts() {
  PutLine& line = context_->scratch->line;
  const uint32_t tenant = session_->identity().tenant.value();
  bool on_loop = true;  // for one of them: the others would keep the loop from other peers
  while (!waiting_.empty()) {
    const uint64_t number = waiting_.front();
    Job& job = jobs_.at(number);
    if (job.copying) return;
    const bool patient = session_->open() && !WaitedLong(job);
    if (patient && !line.MayGo(tenant, this)) return AwaitSpace(job);
    if (absl::Status status = job.put->Reserve(session_->token(), copying_ > 0 || patient);
        !status.ok()) {
      const Job failed = std::move(job);
      waiting_.pop_front();
      jobs_.erase(number);
      replies_->SendError(failed.kind, failed.id, status);
      replies_->NoteEnd(Operation::kPut, status.code(), failed.began);
      continue;
    }
    if (!job.put->reserved()) return AwaitSpace(job);
    job.waits_since.reset();
    line.Leave(tenant, this);
    if (!job.put->waits()) waiting_.pop_front();
    job.copying = true;
    ++copying_;
    if (job.put->Copy(on_loop)) on_loop = false;
  }
  line.Leave(tenant, this);
}

// Puts of this session or of others are copied, and hold the space.
void LocalPeer::AwaitSpace(Job& job) {
  context_->scratch->line.Join(session_->identity().tenant.value(), this);
  if (job.waits_since.has_value()) return;
  job.waits_since = context_->clock->Now();
  if (copying_ == 0) context_->counters->waited_puts.fetch_add(1, std::memory_order_relaxed);
}

bool LocalPeer::WaitedLong(const Job& job) const {
  return job.waits_since.has_value() && context_->clock->Now() - *job.waits_since >= kMostWait;
}

bool LocalPeer::TryAgain() {
  AdvancePuts();
  return !waiting_.empty() && !jobs_.at(waiting_.front()).copying;
}

void LocalPeer::OnRoundOver(uint64_t number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end() || !std::exchange(found->second.copying, false)) return;
  --copying_;
  AdvancePuts();
  context_->scratch->line.Advance(session_->identity().tenant.value());
}

void LocalPeer::OnPutDone(uint64_t number, const PutJob& put) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;  // the connection ended
  const Job job = std::move(found->second);
  jobs_.erase(found);
  copying_ -= job.copying;
  std::erase(waiting_, number);
  if (!put.status().ok()) {
    replies_->SendError(job.kind, job.id, put.status());
  } else {
    put.AppendAnswers(&replies_->Start(job.kind, job.id));
    replies_->Send();
  }
  replies_->NoteEnd(Operation::kPut, put.status().code(), job.began);
  AdvancePuts();
  context_->scratch->line.Advance(session_->identity().tenant.value());
}

}  // namespace kvkeep
