#include "server/local/peer_puts.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "server/local/peer_scratch.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using local::Kind;

// How long a put waits for space that others hold. With the tick that checks it, and the client's
// own part, it is answered within a second.
constexpr std::chrono::milliseconds kMostWait{650};

}  // namespace

PeerPuts::PeerPuts(std::shared_ptr<const LocalContext> context,
                   std::shared_ptr<PeerSession> session, std::shared_ptr<PeerReplies> replies)
    : context_(std::move(context)), session_(std::move(session)), replies_(std::move(replies)) {}

PeerPuts::~PeerPuts() { End(); }

PutLine& PeerPuts::line() const { return context_->scratch->line; }

absl::Status PeerPuts::Start(const local::Message& message, PutPlan plan) {
  KVKEEP_ASSIGN_OR_RETURN(MessageHold hold, session_->HoldFor(message.body.size()));
  const uint64_t number = next_number_++;
  const bool early = plan.gpu() != nullptr && session_->version() >= local::kDeadlinesSince;
  const SaysCopied tells = early ? SaysCopied::kOnceFetched : SaysCopied::kIfDurable;
  jobs_.emplace(number,
                Job{.kind = static_cast<Kind>(message.kind),
                    .id = message.id,
                    .began = replies_->began(),
                    .held = std::move(hold),
                    .put = std::make_shared<PutJob>(context_, std::move(plan),
                                                    CallbacksOf(number, message.id, tells))});
  waiting_.push_back(number);
  Advance();
  return absl::OkStatus();
}

void PeerPuts::Look() {
  for (const auto& [number, job] : jobs_) job.put->Look();
}

void PeerPuts::OnTick(MonotonicTime now) {
  for (auto& [number, job] : jobs_) {
    job.put->Look();
    GiveUpIfStalled(job, now);
  }
  if (waiting_.empty()) return;
  // Space may have come free without a notice; puts that waited long enough are answered.
  line().Advance(tenant());
  Advance();
}

void PeerPuts::GiveUpIfStalled(Job& job, MonotonicTime now) {
  const std::optional<uint64_t> awaited = job.put->awaited_piece();
  if (std::exchange(job.awaited_piece, awaited) != awaited) {
    job.since = now;
  } else if (awaited.has_value() && now - job.since >= context_->limits.grace &&
             job.put->GiveUp(absl::DeadlineExceededError(
                 absl::StrCat("a put in parts: piece ", *awaited, " did not come for ",
                              context_->limits.grace.count(), " ms")))) {
    context_->counters->stalled_puts.fetch_add(1, std::memory_order_relaxed);
  }
}

void PeerPuts::Cancel() {
  for (const auto& [number, job] : jobs_) job.put->Cancel();
}

void PeerPuts::End() {
  line().Leave(tenant(), this);
  jobs_.clear();
  waiting_.clear();
}

void PeerPuts::TellCopied(uint64_t id) {
  if (!session_->open()) return;
  replies_->StartBare(Kind::kPutCopied, id);
  replies_->Send();
}

PutJob::Callbacks PeerPuts::CallbacksOf(uint64_t number, uint64_t id, SaysCopied tells) {
  const auto more = [weak = weak_from_this(), number] {
    if (const std::shared_ptr<PeerPuts> self = weak.lock()) self->OnRoundOver(number);
  };
  std::function<void()> fetched;
  if (tells == SaysCopied::kOnceFetched) {
    fetched = [weak = weak_from_this(), id] {
      if (const std::shared_ptr<PeerPuts> self = weak.lock()) self->TellCopied(id);
    };
  }
  const auto copied = [weak = weak_from_this(), id, number, tells] {
    const std::shared_ptr<PeerPuts> self = weak.lock();
    if (self == nullptr) return;
    if (tells == SaysCopied::kIfDurable) self->TellCopied(id);
    self->OnRoundOver(number);
  };
  const auto done = [weak = weak_from_this(), number](const PutJob& ended) {
    if (const std::shared_ptr<PeerPuts> self = weak.lock()) self->OnPutDone(number, ended);
  };
  return {.more = more, .fetched = std::move(fetched), .copied = copied, .done = done};
}

void PeerPuts::Advance() {
  bool on_loop = true;  // for one put only: more would keep the loop from other peers
  while (!waiting_.empty()) {
    const uint64_t number = waiting_.front();
    Job& job = jobs_.at(number);
    if (job.copying) return;
    const bool patient = session_->open() && !WaitedLong(job);
    if (patient && !line().MayGo(tenant(), this)) return AwaitSpace(job);
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
    line().Leave(tenant(), this);
    if (!job.put->waits()) waiting_.pop_front();
    job.copying = true;
    ++copying_;
    if (job.put->Copy(on_loop)) on_loop = false;
  }
  line().Leave(tenant(), this);
}

// Lets a job wait for space that puts under way hold, of this session or of others.
void PeerPuts::AwaitSpace(Job& job) {
  line().Join(tenant(), this);
  if (job.waits_since.has_value()) return;
  job.waits_since = context_->clock->Now();
  if (copying_ == 0) context_->counters->waited_puts.fetch_add(1, std::memory_order_relaxed);
}

bool PeerPuts::WaitedLong(const Job& job) const {
  return job.waits_since.has_value() && context_->clock->Now() - *job.waits_since >= kMostWait;
}

bool PeerPuts::TryAgain() {
  Advance();
  return !waiting_.empty() && !jobs_.at(waiting_.front()).copying;
}

void PeerPuts::OnRoundOver(uint64_t number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end() || !std::exchange(found->second.copying, false)) return;
  --copying_;
  Advance();
  line().Advance(tenant());
}

void PeerPuts::OnPutDone(uint64_t number, const PutJob& put) {
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
  Advance();
  line().Advance(tenant());
}

}  // namespace kvkeep
