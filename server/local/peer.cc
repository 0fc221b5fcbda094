#include "server/local/peer.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

using local::Kind;

namespace {

// Returns true for requests whose reply comes later; they note their end then.
bool IsAnsweredLater(Kind kind) {
  return kind == Kind::kPut || kind == Kind::kPutInParts || kind == Kind::kPutFromGpu ||
         kind == Kind::kGetToGpu || kind == Kind::kPutUntil || kind == Kind::kPutFromGpuUntil;
}

// The first version in which a client may ask for it.
uint16_t FirstVersion(Kind kind) {
  if (kind >= Kind::kRegisterGpuMemory && kind <= Kind::kGetToGpu) return 4;
  if (kind == Kind::kPutInParts) return local::kPutInPartsSince;
  if (kind == Kind::kPutUntil || kind == Kind::kPutFromGpuUntil) return local::kDeadlinesSince;
  return local::kFirstVersion;
}

}  // namespace

LocalPeer::LocalPeer(std::shared_ptr<const LocalContext> context, Identity identity, PeerSink* sink)
    : context_(std::move(context)),
      replies_(std::make_shared<PeerReplies>(context_, identity.peer, sink)),
      session_(std::make_shared<PeerSession>(context_, std::move(identity), replies_)),
      memory_(context_),
      gpu_(context_, session_->identity().gpu),
      call_(context_->scratch->call),
      places_(context_->scratch->places),
      runs_(context_->scratch->runs) {}

LocalPeer::~LocalPeer() { End(); }

void LocalPeer::OnMessage(local::Message message) {
  // Descriptors that no request took: the last close may wait, so it is not made here.
  const auto close = absl::MakeCleanup([&message, this] {
    for (UniqueFd& fd : message.descriptors) {
      DescriptorCloser::OfProcess().Close(std::move(fd), session_->identity().closes);
    }
  });
  if (session_->ended()) return;
  if (message.id == 0 || (message.kind & local::kReplyBit) != 0) {
    const auto why = absl::InvalidArgumentError(absl::StrCat(
        "a message of kind ", message.kind, " and id ", message.id, " is not a request"));
    replies_->SendError(static_cast<Kind>(message.kind), 0, why);
    replies_->Close(why);
    return;
  }
  if (static_cast<Kind>(message.kind) == Kind::kHello) {
    Hello(message);
    return;
  }
  if (absl::Status may = CheckMayAsk(message); !may.ok()) {
    replies_->SendError(static_cast<Kind>(message.kind), message.id, may);
    return;
  }
  Dispatch(message);
}

bool LocalPeer::ready() const {
  const size_t in_flight =
      jobs_.size() + gpu_gets_.size() + asking_.size() + deleting_.size();
  const std::shared_ptr<MessageAccount>& messages = session_->identity().messages;
  const bool scarce = messages != nullptr && messages->busy();
  return in_flight < (scarce ? 1 : context_->limits.max_puts_in_flight);
}

absl::Status LocalPeer::Unknown(uint16_t kind) const {
  return absl::UnimplementedError(
      absl::StrCat("kind ", kind, " is no request of version ", session_->version()));
}

absl::Status LocalPeer::CheckMayAsk(const local::Message& message) const {
  if (session_->fresh()) return absl::FailedPreconditionError("the first request is Hello");
  if (session_->revoked()) {
    return absl::FailedPreconditionError(
        "the session was revoked, as its client did not respond; connect anew");
  }
  if (session_->version() < FirstVersion(static_cast<Kind>(message.kind)))
    return Unknown(message.kind);
  if (static_cast<Kind>(message.kind) == Kind::kRegisterGpuMemory) return absl::OkStatus();
  const bool takes_one = static_cast<Kind>(message.kind) == Kind::kRegisterMemory;
  if (message.descriptors.size() != (takes_one ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        message.descriptors.size(), " descriptors came, wanted are ", takes_one ? 1 : 0));
  }
  return absl::OkStatus();
}

void LocalPeer::Dispatch(local::Message& message) {
  LocalCounters& counters = *context_->counters;
  const Kind kind = static_cast<Kind>(message.kind);
  const auto run = [&](LocalCounters::Counter& counter, Operation operation, auto& by,
                       auto method) {
    counter.fetch_add(1, std::memory_order_relaxed);
    replies_->Begin();
    answered_later_ = false;
    const absl::Status status = (by.*method)(message);
    if (!status.ok()) replies_->SendError(kind, message.id, status);
    if ((answered_later_ || IsAnsweredLater(kind)) && status.ok()) return;
    const bool of_keys = !IsAnsweredLater(kind) && operation != Operation::kSession;
    replies_->NoteEnd(operation, status.code(), replies_->began(),
                      of_keys ? call_.chunks().keys.size() : 0);
  };
  switch (kind) {
    case Kind::kOpenNamespace:
      return run(counters.session_requests, Operation::kSession, *session_,
                 &PeerSession::OpenNamespace);
    case Kind::kServerInfo:
      return run(counters.session_requests, Operation::kSession, *session_,
                 &PeerSession::ServerInfo);
    case Kind::kStaging:
      return run(counters.session_requests, Operation::kSession, *this, &LocalPeer::Staging);
    case Kind::kRegisterMemory:
      return run(counters.session_requests, Operation::kSession, *this, &LocalPeer::Register);
    case Kind::kUnregisterMemory:
      return run(counters.session_requests, Operation::kSession, *this, &LocalPeer::Unregister);
    case Kind::kLookup:
      return run(counters.lookups, Operation::kLookup, *this, &LocalPeer::Keys);
    case Kind::kGet:
      return run(counters.gets, Operation::kGet, *this, &LocalPeer::Keys);
    case Kind::kPut:
    case Kind::kPutUntil:
    case Kind::kPutInParts:
      return run(counters.puts, Operation::kPut, *this, &LocalPeer::Put);
    case Kind::kTouch:
      return run(counters.touches, Operation::kTouch, *this, &LocalPeer::Keys);
    case Kind::kPrefetch:
      return run(counters.prefetches, Operation::kPrefetch, *this, &LocalPeer::Keys);
    case Kind::kRelease:
      return run(counters.releases, Operation::kRelease, *this, &LocalPeer::Keys);
    case Kind::kDelete:
      return run(counters.deletes, Operation::kDelete, *this, &LocalPeer::Keys);
    case Kind::kRegisterGpuMemory:
      return run(counters.session_requests, Operation::kSession, *this, &LocalPeer::RegisterGpu);
    case Kind::kUnregisterGpuMemory:
      return run(counters.session_requests, Operation::kSession, *this, &LocalPeer::UnregisterGpu);
    case Kind::kPutFromGpu:
    case Kind::kPutFromGpuUntil:
      return run(counters.gpu_puts, Operation::kPut, *this, &LocalPeer::Put);
    case Kind::kGetToGpu:
      return run(counters.gpu_gets, Operation::kGet, *this, &LocalPeer::GetToGpu);
    default:
      return replies_->SendError(kind, message.id, Unknown(message.kind));
  }
}

void LocalPeer::Hello(const local::Message& message) {
  context_->counters->session_requests.fetch_add(1, std::memory_order_relaxed);
  if (!session_->fresh()) {
    replies_->SendError(Kind::kHello, message.id,
                        absl::FailedPreconditionError("Hello: this connection has its session"));
    return;
  }
  const absl::Status status = session_->Open(message);
  if (status.ok()) return;
  replies_->SendError(Kind::kHello, message.id, status);
  replies_->Close(status);
}

bool LocalPeer::OnPutFilled() {
  if (session_->version() < local::kPutInPartsSince) return false;
  for (const auto& [number, job] : jobs_) job.put->Look();
  return true;
}

void LocalPeer::OnTick(MonotonicTime now) {
  for (auto& [number, job] : jobs_) {
    job.put->Look();
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
  if (waiting_.empty()) return;
  // Space may have come free without a notice; puts that waited long enough are answered.
  context_->scratch->line.Advance(session_->identity().tenant.value());
  AdvancePuts();
}

bool LocalPeer::holds_something() const {
  return session_->open() && (!session_->leases().empty() || !jobs_.empty() || !gpu_gets_.empty());
}

void LocalPeer::CancelWork() {
  for (const auto& [number, job] : jobs_) job.put->Cancel();
  for (const auto& [number, job] : gpu_gets_) job.get->Cancel();
  gpu_.Clear();
}

void LocalPeer::Revoke(const std::string& why) {
  if (!session_->open()) return;
  context_->counters->revoked_sessions.fetch_add(1, std::memory_order_relaxed);
  CancelWork();
  session_->Revoke();
  AdvancePuts();  // those that wait are refused
  replies_->SendEvent(Kind::kRevoked, why);
}

void LocalPeer::NotifyDraining() {
  if (session_->open()) replies_->SendEvent(Kind::kDraining);
}

void LocalPeer::End() {
  replies_->End();
  context_->scratch->line.Leave(session_->identity().tenant.value(), this);
  if (session_->open()) CancelWork();
  session_->End();
  jobs_.clear();
  gpu_gets_.clear();
  asking_.clear();
  deleting_.clear();
  waiting_.clear();
}

}  // namespace kvkeep
