#include "server/local/peer.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

using local::Kind;

namespace {

// Returns the first version of the protocol with this kind of request.
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
      keys_(std::make_shared<PeerKeys>(context_, session_, replies_)),
      memory_(std::make_shared<PeerMemory>(context_, session_, replies_)),
      gpu_(std::make_shared<PeerGpu>(context_, session_, replies_)),
      puts_(std::make_shared<PeerPuts>(context_, session_, replies_)) {}

LocalPeer::~LocalPeer() { End(); }

void LocalPeer::OnMessage(local::Message message) {
  // Hands on descriptors that no request took: their last close may wait, so it is not done here.
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
  const size_t in_flight = puts_->in_flight() + gpu_->in_flight() + keys_->in_flight();
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
  const Kind kind = static_cast<Kind>(message.kind);
  if (session_->version() < FirstVersion(kind)) return Unknown(message.kind);
  if (kind == Kind::kRegisterGpuMemory) return absl::OkStatus();
  const bool takes_one = kind == Kind::kRegisterMemory;
  if (message.descriptors.size() != (takes_one ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        message.descriptors.size(), " descriptors came, wanted are ", takes_one ? 1 : 0));
  }
  return absl::OkStatus();
}

void LocalPeer::Dispatch(local::Message& message) {
  LocalCounters& counters = *context_->counters;
  switch (const Kind kind = static_cast<Kind>(message.kind); kind) {
    case Kind::kOpenNamespace:
      return ServeSession(message, *session_, &PeerSession::OpenNamespace);
    case Kind::kServerInfo:
      return ServeSession(message, *session_, &PeerSession::ServerInfo);
    case Kind::kStaging:
      return ServeSession(message, *memory_, &PeerMemory::Staging);
    case Kind::kRegisterMemory:
      return ServeSession(message, *memory_, &PeerMemory::Register);
    case Kind::kUnregisterMemory:
      return ServeSession(message, *memory_, &PeerMemory::Unregister);
    case Kind::kRegisterGpuMemory:
      return ServeSession(message, *gpu_, &PeerGpu::Register);
    case Kind::kUnregisterGpuMemory:
      return ServeSession(message, *gpu_, &PeerGpu::Unregister);
    case Kind::kLookup:
      return ServeKeys(message, &counters.lookups, Operation::kLookup);
    case Kind::kGet:
      return ServeKeys(message, &counters.gets, Operation::kGet);
    case Kind::kTouch:
      return ServeKeys(message, &counters.touches, Operation::kTouch);
    case Kind::kPrefetch:
      return ServeKeys(message, &counters.prefetches, Operation::kPrefetch);
    case Kind::kRelease:
      return ServeKeys(message, &counters.releases, Operation::kRelease);
    case Kind::kDelete:
      return ServeKeys(message, &counters.deletes, Operation::kDelete);
    case Kind::kPut:
    case Kind::kPutUntil:
    case Kind::kPutInParts:
      return ServePut(message, &counters.puts);
    case Kind::kPutFromGpu:
    case Kind::kPutFromGpuUntil:
      return ServePut(message, &counters.gpu_puts);
    case Kind::kGetToGpu:
      return ServeGpuGet(message);
    default:
      return replies_->SendError(kind, message.id, Unknown(message.kind));
  }
}

void LocalPeer::Begin(LocalCounters::Counter* counter) {
  counter->fetch_add(1, std::memory_order_relaxed);
  replies_->Begin();
}

void LocalPeer::Fail(const local::Message& message, Operation operation, const absl::Status& status,
                     size_t keys) {
  replies_->SendError(static_cast<Kind>(message.kind), message.id, status);
  replies_->NoteEnd(operation, status.code(), replies_->began(), keys);
}

template <typename Object, typename Method>
void LocalPeer::ServeSession(local::Message& message, Object& object, Method method) {
  Begin(&context_->counters->session_requests);
  const absl::Status status = (object.*method)(message);
  if (!status.ok()) return Fail(message, Operation::kSession, status);
  replies_->NoteEnd(Operation::kSession, absl::StatusCode::kOk, replies_->began());
}

void LocalPeer::ServeKeys(const local::Message& message, LocalCounters::Counter* counter,
                          Operation operation) {
  Begin(counter);
  const absl::StatusOr<PeerKeys::Answered> answered = keys_->Serve(message);
  if (!answered.ok()) return Fail(message, operation, answered.status(), keys_->keys());
  if (*answered == PeerKeys::Answered::kLater) return;
  replies_->NoteEnd(operation, absl::StatusCode::kOk, replies_->began(), keys_->keys());
}

void LocalPeer::ServePut(const local::Message& message, LocalCounters::Counter* counter) {
  Begin(counter);
  absl::StatusOr<PutPlan> plan =
      PutPlan::Parse(static_cast<Kind>(message.kind), message.body, context_->limits,
                     memory_->regions(), gpu_->regions());
  const absl::Status status = plan.ok() ? puts_->Start(message, *std::move(plan)) : plan.status();
  if (!status.ok()) Fail(message, Operation::kPut, status);
}

void LocalPeer::ServeGpuGet(const local::Message& message) {
  Begin(&context_->counters->gpu_gets);
  const absl::Status status = gpu_->Get(message);
  if (!status.ok()) Fail(message, Operation::kGet, status);
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
  puts_->Look();
  return true;
}

bool LocalPeer::holds_something() const {
  return open() && (!session_->leases().empty() || puts_->in_flight() + gpu_->in_flight() > 0);
}

// Puts first: they name the memory of GPUs that is given back.
void LocalPeer::CancelWork() {
  puts_->Cancel();
  gpu_->Cancel();
}

void LocalPeer::Revoke(const std::string& why) {
  if (!session_->open()) return;
  context_->counters->revoked_sessions.fetch_add(1, std::memory_order_relaxed);
  CancelWork();
  session_->Revoke();
  puts_->Advance();  // waiting puts are refused
  replies_->SendEvent(Kind::kRevoked, why);
}

void LocalPeer::NotifyDraining() {
  if (session_->open()) replies_->SendEvent(Kind::kDraining);
}

void LocalPeer::End() {
  replies_->End();
  if (open()) CancelWork();
  session_->End();
  puts_->End();
  gpu_->End();
  keys_->End();
}

}  // namespace kvkeep
