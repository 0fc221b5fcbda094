#include "client/grpc/grpc_client.h"

#include <grpc/grpc.h>

#include <algorithm>

#include "client/grpc/connection.h"
#include "client/grpc/session_stream.h"
#include "client/grpc/tls_probe.h"
#include "client/grpc/unary_call.h"
#include "client/internal/await.h"
#include "client/transport/backoff.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

// How long gRPC may hold a finished put's memory, or a call beyond its deadline, before the
// connection is broken off to get it back.
constexpr std::chrono::milliseconds kLateGrace{200};
constexpr std::chrono::milliseconds kLookEvery{200};

}  // namespace

void KeepGrpcLoaded() {
  static const bool once = (grpc_init(), true);
  (void)once;
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

InFlightCall::InFlightCall(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session,
                           Deadline deadline)
    : grpc_client_(std::move(grpc_client)),
      session_id_(session->id),
      session_(std::move(session)),
      context_(std::make_shared<grpc::ClientContext>()) {
  const std::string& authorization = session_->connections[0]->authorization();
  if (!authorization.empty()) context_->AddMetadata("authorization", authorization);
  if (deadline.count() <= 0) deadline = grpc_client_->options().default_deadline;
  context_->set_deadline(std::chrono::system_clock::now() + deadline);
  overdue_at_ = steady_clock::now() + deadline + kLateGrace;
}

void InFlightCall::Cancel() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    context = context_;
  }
  if (context != nullptr) context->TryCancel();
}

grpc::ClientContext* InFlightCall::context() {
  MutexLock lock(&mu_);
  return context_.get();
}

void InFlightCall::Disconnect() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    context = std::move(context_);
  }
  context.reset();  // it holds the channel too, and must not be the last to do so (see RunSession)
  session_.reset();
}

GrpcClient::GrpcClient(ClientOptions options) : options_(std::move(options)) {
  away_reason_ = absl::UnavailableError("not connected yet");
}

GrpcClient::~GrpcClient() { KVKEEP_CHECK(!thread_.joinable()); }

void GrpcClient::Start() {
  later_ = std::make_unique<ThreadPool>("kvkeep-later", 1);
  thread_ = std::thread([this] { Run(); });
}

void GrpcClient::Shutdown() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  CancelCallsOf(nullptr);
  thread_.join();
  {
    MutexLock lock(&mu_);
    while (running_ > 0) all_done_.Wait(&mu_);
  }
  later_.reset();
}

// ---------------------------------------------------------------- the session's thread

void GrpcClient::Run() {
  Backoff backoff(options_.backoff_min, options_.backoff_max);
  while (true) {
    const auto began = steady_clock::now();
    absl::Status ended = RunSession();
    const Deadline wait = backoff.After(steady_clock::now() - began);
    MutexLock lock(&mu_);
    away_reason_ = std::move(ended);
    attempted_ = true;
    changed_.NotifyAll();
    const auto retry_at = steady_clock::now() + wait;
    while (!stopping_ && steady_clock::now() < retry_at) {
      changed_.WaitFor(&mu_, retry_at - steady_clock::now());
    }
    if (stopping_) return;
  }
}

absl::Status GrpcClient::RunSession() {
  std::vector<std::unique_ptr<Connection>> connections;
  for (uint32_t i = 0; i < options_.channels; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(
        std::unique_ptr<Connection> connection,
        Connection::Open(options_.endpoint, options_.security, options_.peer_timeout));
    connections.push_back(std::move(connection));
  }
  // The last user of a session may be a callback, on a thread of gRPC. Destroying the last channel
  // of the process there makes gRPC 1.51 wait for that very thread and crash: do it elsewhere.
  const std::shared_ptr<Session> session(
      new Session, [this](Session* last) { later_->Post([last] { delete last; }); });
  session->stub = v1::KvCache::NewStub(connections[0]->channel());
  for (const auto& connection : connections) {
    session->raw.push_back(std::make_unique<grpc::GenericStub>(connection->channel()));
  }
  session->connections = std::move(connections);
  {
    MutexLock lock(&mu_);
    session->id->epoch = ++epochs_;
  }
  SessionStream stream([this] {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  });
  stream.Start(session->stub.get(), options_.client_name, session->connections[0]->authorization());
  absl::Status status = Publish(session, &stream);
  if (status.ok()) WaitForEnd(session, &stream);
  {
    MutexLock lock(&mu_);
    session_ = nullptr;
    session->id->over = true;
    changed_.NotifyAll();
  }
  const bool lost = session->lost_connection();
  stream.Cancel();
  // Whatever still runs on this connection is of no use: a lookup's lease would be dead on arrival.
  session->Break();
  const absl::Status ended = stream.WaitDone();
  CancelCallsOf(session->id.get());
  if (!status.ok()) {
    return stream.opened() ? status
                           : ExplainedByTls(std::move(status), options_.endpoint, options_.security,
                                            options_.default_deadline);
  }
  // It was us who cancelled the stream.
  if (lost && absl::IsCancelled(ended)) {
    return absl::UnavailableError("one of the session's connections was lost");
  }
  return ended.ok() ? absl::UnavailableError("the daemon ended the session") : ended;
}

absl::Status GrpcClient::Publish(const std::shared_ptr<Session>& session, SessionStream* stream) {
  {
    MutexLock lock(&mu_);
    const auto give_up = steady_clock::now() + options_.default_deadline;
    while (!stream->opened() && !stream->done() && !stopping_) {
      if (steady_clock::now() >= give_up) {
        return absl::UnavailableError("no answer to OpenSession by the deadline");
      }
      changed_.WaitFor(&mu_, give_up - steady_clock::now());
    }
    if (!stream->opened()) {
      return stream->done() ? stream->status() : absl::CancelledError("stopping");
    }
    session->id->token = stream->token();
    session->limits = stream->limits();
  }
  while (true) {
    KVKEEP_RETURN_IF_ERROR(DeclareAll(session));
    MutexLock lock(&mu_);
    if (stopping_) return absl::CancelledError("stopping");
    if (stream->done()) return stream->status();
    if (!namespaces_.Undeclared(session->id->epoch).empty()) continue;  // one more came in between
    session_ = session;
    limits_ = session->limits;
    attempted_ = true;
    counters.sessions_opened.fetch_add(1);
    changed_.NotifyAll();
    return absl::OkStatus();
  }
}

absl::Status GrpcClient::DeclareAll(const SessionPtr& session) {
  std::vector<DeclaredNamespaces::Ptr> missing;
  {
    MutexLock lock(&mu_);
    missing = namespaces_.Undeclared(session->id->epoch);
  }
  for (const auto& ns : missing) {
    KVKEEP_RETURN_IF_ERROR(Declare(session, ns.get(), options_.default_deadline));
  }
  return absl::OkStatus();
}

absl::Status GrpcClient::Declare(const SessionPtr& session, DeclaredNamespace* ns,
                                 Deadline deadline) {
  const v1::OpenNamespaceRequest request = ToWire(ns->spec(), session->id->token);
  using Answer = absl::StatusOr<NamespaceDigest>;
  const Answer answer = Await<Answer>([&](auto done) {
    using Call = UnaryCall<v1::OpenNamespaceRequest, v1::OpenNamespaceResponse>;
    Call::Start(
        shared_from_this(), session, &v1::KvCache::StubInterface::async_interface::OpenNamespace,
        request, deadline, [done](absl::Status status, auto&, auto& response) mutable {
          if (!status.ok()) return done(Answer(std::move(status)));
          if (response.namespace_digest().size() != NamespaceDigest::kSize) {
            return done(Answer(absl::InternalError("OpenNamespace: digest of a wrong length")));
          }
          done(Answer(*NamespaceDigest::FromBytes(response.namespace_digest())));
        });
  });
  return ns->TakeAnswer(session->id->epoch, answer);
}

bool GrpcClient::HasOverdueCall(const SessionId* id) const {
  const auto now = steady_clock::now();
  return std::any_of(calls_.begin(), calls_.end(), [&](const auto& call) {
    return call.second->session_id().get() == id && now > call.second->overdue_at();
  });
}

void GrpcClient::WaitForEnd(const SessionPtr& session, SessionStream* stream) {
  while (true) {
    bool declare = false;
    {
      MutexLock lock(&mu_);
      if (stopping_ || stream->done() || torn_down_epoch_ == session->id->epoch) return;
      declare = !namespaces_.Undeclared(session->id->epoch).empty();
      const bool late =
          session->id->late_puts > 0 && steady_clock::now() - late_since_ > kLateGrace;
      if (late || HasOverdueCall(session->id.get()) || session->lost_connection()) {
        counters.sessions_torn_down.fetch_add(1);
        return;
      }
      // Not told when a call gets overdue: so it looks.
      changed_.WaitFor(&mu_, kLookEvery);
    }
    // A namespace whose declaration was lost (its caller's deadline): try until the daemon has it.
    if (declare) (void)DeclareAll(session);
  }
}

// ---------------------------------------------------------------- sessions and namespaces for
// calls

void GrpcClient::WaitFirstAttempt(Deadline timeout) {
  const auto give_up = steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  while (!attempted_ && steady_clock::now() < give_up) {
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
}

bool GrpcClient::WaitConnected(Deadline timeout) {
  const auto give_up = steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  while (session_ == nullptr && !stopping_ && steady_clock::now() < give_up) {
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
  return session_ != nullptr;
}

absl::Status GrpcClient::why_away() const {
  MutexLock lock(&mu_);
  return session_ != nullptr ? absl::OkStatus() : away_reason_;
}

absl::StatusOr<SessionPtr> GrpcClient::CurrentSession() {
  counters.calls.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  if (stopping_) return absl::CancelledError("the kvkeep client is being destroyed");
  if (session_ == nullptr) {
    counters.failed_fast.fetch_add(1, std::memory_order_relaxed);
    return AwayError(options_.endpoint, away_reason_);
  }
  return session_;
}

SessionPtr GrpcClient::FindSession(const std::shared_ptr<SessionId>& id) {
  MutexLock lock(&mu_);
  return !stopping_ && session_ != nullptr && session_->id == id ? session_ : nullptr;
}

absl::StatusOr<GrpcClient::Ready> GrpcClient::Prepare(Transport::Ns binding) {
  KVKEEP_ASSIGN_OR_RETURN(SessionPtr session, CurrentSession());
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest,
                          static_cast<DeclaredNamespace&>(*binding).DigestIn(session->id->epoch));
  return Ready{std::move(session), std::string(digest.view())};
}

absl::StatusOr<DeclaredNamespaces::Ptr> GrpcClient::OpenNamespace(const NamespaceSpec& spec,
                                                                  Deadline deadline) {
  DeclaredNamespaces::Ptr ns;
  SessionPtr session;
  {
    MutexLock lock(&mu_);
    KVKEEP_ASSIGN_OR_RETURN(ns, namespaces_.Add(spec));
    session = session_;
  }
  if (session == nullptr) return ns;
  // A failure here is no error: the session's thread declares it once the daemon answers again.
  (void)Declare(session, ns.get(), deadline);
  absl::Status refusal = ns->refusal();
  MutexLock lock(&mu_);
  changed_.NotifyAll();
  if (refusal.ok()) return ns;
  namespaces_.Remove(ns);
  return refusal;
}

// ---------------------------------------------------------------- calls in flight

absl::Status GrpcClient::Begin(std::shared_ptr<InFlightCall> call) {
  InFlightCall* const raw = call.get();
  MutexLock lock(&mu_);
  if (stopping_) return absl::CancelledError("the kvkeep client is being destroyed");
  calls_[raw] = std::move(call);
  ++running_;
  return absl::OkStatus();
}

void GrpcClient::End(InFlightCall* call, absl::AnyInvocable<void() &&> callback) {
  const std::shared_ptr<GrpcClient> self =
      shared_from_this();  // the callback may drop the last other one
  std::shared_ptr<InFlightCall> keep;
  {
    MutexLock lock(&mu_);
    auto it = calls_.find(call);
    KVKEEP_CHECK(it != calls_.end());
    keep = std::move(it->second);
    calls_.erase(it);
  }
  std::move(callback)();
  keep.reset();
  MutexLock lock(&mu_);
  if (--running_ == 0 && stopping_) all_done_.NotifyAll();
}

void GrpcClient::EndLater(InFlightCall* call, absl::AnyInvocable<void() &&> callback) {
  later_->Post(
      [this, call, callback = std::move(callback)]() mutable { End(call, std::move(callback)); });
}

void GrpcClient::CancelCallsOf(const SessionId* id) {
  std::vector<std::shared_ptr<InFlightCall>> calls;
  {
    MutexLock lock(&mu_);
    for (const auto& [raw, call] : calls_) {
      if (id == nullptr || call->session_id().get() == id) calls.push_back(call);
    }
  }
  for (const auto& call : calls) call->Cancel();
}

void GrpcClient::TearDown(const SessionId& id) {
  MutexLock lock(&mu_);
  if (session_ == nullptr || session_->id.get() != &id || torn_down_epoch_ == id.epoch) return;
  torn_down_epoch_ = id.epoch;
  counters.sessions_torn_down.fetch_add(1);
  changed_.NotifyAll();
}

void GrpcClient::SlicesAreLate(SessionId& id) {
  counters.late_slices.fetch_add(1);
  MutexLock lock(&mu_);
  if (id.late_puts.fetch_add(1) == 0) late_since_ = steady_clock::now();
  changed_.NotifyAll();
}

void GrpcClient::ReleaseLease(const std::shared_ptr<SessionId>& id, uint64_t lease_id,
                              uint32_t keep_keys, DoneCallback done) {
  SessionPtr session = FindSession(id);
  if (session == nullptr) {  // the lease died with its session
    if (done) std::move(done)(absl::OkStatus());
    return;
  }
  v1::ReleaseRequest request;
  request.set_session_token(id->token);
  request.set_lease_id(lease_id);
  request.set_keep_keys(keep_keys);
  UnaryCall<v1::ReleaseRequest, v1::ReleaseResponse>::Start(
      shared_from_this(), session, &v1::KvCache::StubInterface::async_interface::Release,
      std::move(request), options_.default_deadline,
      [done = std::move(done)](absl::Status status, auto&, auto&) mutable {
        if (done) std::move(done)(std::move(status));
      });
}

ServerLimits GrpcClient::limits() const {
  MutexLock lock(&mu_);
  return limits_;
}

ClientStats GrpcClient::GetStats() const {
  return {.sessions_opened = counters.sessions_opened,
          .calls = counters.calls,
          .failed_fast = counters.failed_fast,
          .corrupt_chunks = counters.corrupt_chunks,
          .bytes_received = counters.bytes_received,
          .bytes_sent = counters.bytes_sent,
          .late_slices = counters.late_slices,
          .sessions_torn_down = counters.sessions_torn_down,
          .leases_reclaimed = counters.leases_reclaimed};
}

}  // namespace kvkeep::client
