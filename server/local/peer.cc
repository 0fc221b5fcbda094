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
      identity_(std::move(identity)),
      sink_(sink),
      memory_(context_),
      gpu_(context_, identity_.gpu),
      reply_(context_->scratch->reply),
      call_(context_->scratch->call),
      places_(context_->scratch->places),
      runs_(context_->scratch->runs) {}

LocalPeer::~LocalPeer() { End(); }

void LocalPeer::OnMessage(local::Message message) {
  // Descriptors that no request took: the last close may wait, so it is not made here.
  const auto close = absl::MakeCleanup([&message, this] {
    for (UniqueFd& fd : message.descriptors) {
      DescriptorCloser::OfProcess().Close(std::move(fd), identity_.closes);
    }
  });
  if (state_ == State::kEnded) return;
  if (message.id == 0 || (message.kind & local::kReplyBit) != 0) {
    const auto why = absl::InvalidArgumentError(absl::StrCat(
        "a message of kind ", message.kind, " and id ", message.id, " is not a request"));
    ReplyError(message.kind, 0, why);
    sink_->Close(why);
    return;
  }
  if (static_cast<Kind>(message.kind) == Kind::kHello) {
    Hello(message);
    return;
  }
  if (absl::Status may = CheckMayAsk(message); !may.ok()) {
    ReplyError(message.kind, message.id, may);
    return;
  }
  Dispatch(message);
}

bool LocalPeer::ready() const {
  const size_t in_flight =
      jobs_.size() + gpu_gets_.size() + asking_.size() + deleting_.size();
  const bool scarce = identity_.messages != nullptr && identity_.messages->busy();
  return in_flight < (scarce ? 1 : context_->limits.max_puts_in_flight);
}

absl::Status LocalPeer::Unknown(uint16_t kind) const {
  return absl::UnimplementedError(
      absl::StrCat("kind ", kind, " is no request of version ", version_));
}

absl::Status LocalPeer::CheckMayAsk(const local::Message& message) const {
  if (state_ == State::kNew) return absl::FailedPreconditionError("the first request is Hello");
  if (state_ == State::kRevoked) {
    return absl::FailedPreconditionError(
        "the session was revoked, as its client did not respond; connect anew");
  }
  if (version_ < FirstVersion(static_cast<Kind>(message.kind))) return Unknown(message.kind);
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
  const auto run = [&](LocalCounters::Counter& counter, Operation operation, auto method) {
    counter.fetch_add(1, std::memory_order_relaxed);
    if (context_->times != nullptr) request_began_ = context_->times->Now();
    answered_later_ = false;
    const absl::Status status = (this->*method)(message);
    if (!status.ok()) ReplyError(message.kind, message.id, status);
    const Kind kind = static_cast<Kind>(message.kind);
    if ((answered_later_ || IsAnsweredLater(kind)) && status.ok()) return;
    const bool of_keys = !IsAnsweredLater(kind) && operation != Operation::kSession;
    NoteEnd(operation, status.code(), request_began_, of_keys ? call_.chunks().keys.size() : 0);
  };
  switch (static_cast<Kind>(message.kind)) {
    case Kind::kOpenNamespace:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::OpenNamespace);
    case Kind::kServerInfo:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::ServerInfo);
    case Kind::kStaging:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::Staging);
    case Kind::kRegisterMemory:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::Register);
    case Kind::kUnregisterMemory:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::Unregister);
    case Kind::kLookup:
      return run(counters.lookups, Operation::kLookup, &LocalPeer::Keys);
    case Kind::kGet:
      return run(counters.gets, Operation::kGet, &LocalPeer::Keys);
    case Kind::kPut:
    case Kind::kPutUntil:
    case Kind::kPutInParts:
      return run(counters.puts, Operation::kPut, &LocalPeer::Put);
    case Kind::kTouch:
      return run(counters.touches, Operation::kTouch, &LocalPeer::Keys);
    case Kind::kPrefetch:
      return run(counters.prefetches, Operation::kPrefetch, &LocalPeer::Keys);
    case Kind::kRelease:
      return run(counters.releases, Operation::kRelease, &LocalPeer::Keys);
    case Kind::kDelete:
      return run(counters.deletes, Operation::kDelete, &LocalPeer::Keys);
    case Kind::kRegisterGpuMemory:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::RegisterGpu);
    case Kind::kUnregisterGpuMemory:
      return run(counters.session_requests, Operation::kSession, &LocalPeer::UnregisterGpu);
    case Kind::kPutFromGpu:
    case Kind::kPutFromGpuUntil:
      return run(counters.gpu_puts, Operation::kPut, &LocalPeer::Put);
    case Kind::kGetToGpu:
      return run(counters.gpu_gets, Operation::kGet, &LocalPeer::GetToGpu);
    default:
      return ReplyError(message.kind, message.id, Unknown(message.kind));
  }
}

void LocalPeer::NoteEnd(Operation operation, absl::StatusCode code, MonotonicTime began,
                        size_t keys) {
  if (context_->times == nullptr) return;
  context_->times->Note({Listener::kLocal, operation, code}, began,
                        [&] { return Requester{.peer = identity_.peer, .keys = keys}; });
}

void LocalPeer::ReplyError(uint16_t kind, uint64_t id, const absl::Status& status) {
  context_->counters->errors.fetch_add(1, std::memory_order_relaxed);
  sink_->Send(local::StartReply(static_cast<Kind>(kind), id, status).Finish(), {});
}

void LocalPeer::StartReply(Kind kind, uint64_t id) {
  reply_.Reset(static_cast<uint16_t>(kind) | local::kReplyBit, id);
  reply_.Append(local::ReplyHead{});
}

void LocalPeer::SendReply(std::vector<UniqueFd> descriptors) {
  sink_->Send(reply_.Finish(), std::move(descriptors));
}

bool LocalPeer::OnPutFilled() {
  if (version_ < local::kPutInPartsSince) return false;
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
  context_->scratch->line.Advance(identity_.tenant.value());
  AdvancePuts();
}

bool LocalPeer::holds_something() const {
  return state_ == State::kOpen && (!leases_->empty() || !jobs_.empty() || !gpu_gets_.empty());
}

void LocalPeer::GiveUpHoldings(bool revoked) {
  for (const auto& [number, job] : jobs_) job.put->Cancel();
  for (const auto& [number, job] : gpu_gets_) job.get->Cancel();
  gpu_.Clear();
  // First the word, then the bytes: a client that reads after they are gone sees it.
  progress_->EndSession();
  leases_->End();
  if (revoked) {
    context_->store->RevokeSession(session_);
  } else {
    context_->store->CloseSession(session_);
  }
}

void LocalPeer::Revoke(const std::string& why) {
  if (state_ != State::kOpen) return;
  state_ = State::kRevoked;
  context_->counters->revoked_sessions.fetch_add(1, std::memory_order_relaxed);
  GiveUpHoldings(true);
  AdvancePuts();  // those that wait are refused
  local::MessageWriter event(static_cast<uint16_t>(Kind::kRevoked), 0);
  event.AppendText(why);
  sink_->SendEvent(event.Finish());
}

void LocalPeer::NotifyDraining() {
  if (state_ != State::kOpen) return;
  sink_->SendEvent(local::MessageWriter(static_cast<uint16_t>(Kind::kDraining), 0).Finish());
}

void LocalPeer::End() {
  const State before = std::exchange(state_, State::kEnded);
  sink_ = nullptr;
  context_->scratch->line.Leave(identity_.tenant.value(), this);
  if (before == State::kOpen) GiveUpHoldings(false);
  jobs_.clear();
  gpu_gets_.clear();
  asking_.clear();
  deleting_.clear();
  waiting_.clear();
}

}  // namespace kvkeep
