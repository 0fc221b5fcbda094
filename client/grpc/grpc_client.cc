#include "client/grpc/grpc_client.h"

#include <absl/strings/match.h>
#include <grpc/grpc.h>

#include <algorithm>

#include "client/grpc/connection.h"
#include "client/grpc/grpc_clash.h"
#include "client/grpc/session_stream.h"
#include "client/grpc/tls_probe.h"
#include "client/grpc/unary_call.h"
#include "client/internal/await.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

// How long gRPC may hold a finished put's memory, or a call beyond its deadline, before the
// connection is broken to get it back.
constexpr std::chrono::milliseconds kLateGrace{200};
constexpr std::chrono::milliseconds kLookEvery{200};

}  // namespace

absl::Status KeepGrpcLoaded() {
  KVKEEP_RETURN_IF_ERROR(CheckGrpcClash());
  static const bool once = (grpc_init(), true);
  (void)once;
  return absl::OkStatus();
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The session's end may overtake the answer of one of its calls.
  const absl::Status said(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
  return absl::IsFailedPrecondition(said) && IsOfEndedSession(said)
             ? absl::UnavailableError(said.message())
             : said;
}

bool IsOfEndedSession(const absl::Status& status) {
  return absl::StartsWith(status.message(), "session_token is not of an open session");
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
  context.reset();  // it holds the channel too, and must not be the last holder (see RunSession)
  session_.reset();
}

GrpcClient::GrpcClient(ClientOptions options)
    : options_(std::move(options)),
      keeper_({.where = options_.endpoint,
               .default_deadline = options_.default_deadline,
               .backoff_min = options_.backoff_min,
               .backoff_max = options_.backoff_max},
              this) {}

GrpcClient::~GrpcClient() = default;

void GrpcClient::Start() {
  later_ = std::make_unique<ThreadPool>("kvkeep-later", 1);
  keeper_.Start();
}

void GrpcClient::Shutdown() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  keeper_.Stop();
  CancelCallsOf(nullptr);
  keeper_.Join();
  {
    MutexLock lock(&mu_);
    while (running_ > 0) all_done_.Wait(&mu_);
  }
  later_.reset();
}

// ---------------------------------------------------------------- the session's thread

absl::StatusOr<std::shared_ptr<Session>> GrpcClient::Connect(uint64_t epoch) {
  std::vector<std::unique_ptr<Connection>> connections;
  for (uint32_t i = 0; i < options_.channels; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(
        std::unique_ptr<Connection> connection,
        Connection::Open(options_.endpoint, options_.security, options_.peer_timeout));
    connections.push_back(std::move(connection));
  }
  // The last user of a session may be a callback, on a thread of gRPC. Destroying the last channel
  // of the process there makes gRPC 1.51 wait for that very thread and crash, so another thread
  // does it.
  std::shared_ptr<Session> session(
      new Session, [this](Session* last) { later_->Post([last] { delete last; }); });
  session->stub = v1::KvCache::NewStub(connections[0]->channel());
  for (const auto& connection : connections) {
    session->raw.push_back(std::make_unique<grpc::GenericStub>(connection->channel()));
  }
  session->connections = std::move(connections);
  session->id->epoch = epoch;
  return session;
}

absl::Status GrpcClient::RunSession(uint64_t epoch) {
  KVKEEP_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Connect(epoch));
  SessionStream stream([this] {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  });
  stream.Start(session->stub.get(), options_.client_name, session->connections[0]->authorization());
  absl::Status status = AwaitOpened(session, &stream);
  if (status.ok()) status = Publish(session, stream);
  if (status.ok()) WaitForEnd(session, &stream);
  session->id->over = true;
  keeper_.Withdraw();
  const bool lost = session->lost_connection();
  stream.Cancel();
  // Calls that still run on this connection are useless: a lookup's lease would be dead on arrival.
  session->Break();
  const absl::Status ended = stream.WaitDone();
  CancelCallsOf(session->id.get());
  if (!status.ok()) {
    return stream.opened() ? status
                           : ExplainedByTls(std::move(status), options_.endpoint, options_.security,
                                            options_.default_deadline);
  }
  // The stream was cancelled by this client.
  if (lost && absl::IsCancelled(ended)) {
    return absl::UnavailableError("one of the session's connections was lost");
  }
  return ended.ok() ? absl::UnavailableError("the daemon ended the session") : ended;
}

absl::Status GrpcClient::AwaitOpened(const std::shared_ptr<Session>& session,
                                     SessionStream* stream) {
  MutexLock lock(&mu_);
  const auto give_up = steady_clock::now() + options_.default_deadline;
  while (!stream->opened() && !stream->done() && !stopping_) {
    if (steady_clock::now() >= give_up) {
      return absl::UnavailableError("no answer to OpenSession by the deadline");
    }
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
  if (!stream->opened()) return stream->done() ? stream->status() : BeingDestroyed();
  session->id->token = stream->token();
  session->limits = stream->limits();
  return absl::OkStatus();
}

absl::Status GrpcClient::Publish(const SessionPtr& session, const SessionStream& stream) {
  KVKEEP_RETURN_IF_ERROR(keeper_.Begin(session));
  while (!stream.done()) {
    KVKEEP_ASSIGN_OR_RETURN(
        const bool published,
        keeper_.Publish(session, session->limits, [&stream] { return !stream.done(); }));
    if (published) return absl::OkStatus();
  }
  return stream.status();  // if OK, WaitForEnd sees that it is over
}

absl::StatusOr<NamespaceDigest> GrpcClient::AskToOpen(const SessionPtr& session,
                                                      const NamespaceSpec& spec,
                                                      Deadline deadline) {
  using Answer = absl::StatusOr<NamespaceDigest>;
  return Await<Answer>([&](auto done) {
    using Call = UnaryCall<v1::OpenNamespaceRequest, v1::OpenNamespaceResponse>;
    Call::Start(
        shared_from_this(), session, &v1::KvCache::StubInterface::async_interface::OpenNamespace,
        ToWire(spec, session->id->token), deadline,
        [done](absl::Status status, auto&, auto& response) mutable {
          if (!status.ok()) return done(Answer(std::move(status)));
          if (response.namespace_digest().size() != NamespaceDigest::kSize) {
            return done(Answer(absl::InternalError("OpenNamespace: digest of a wrong length")));
          }
          done(Answer(*NamespaceDigest::FromBytes(response.namespace_digest())));
        });
  });
}

bool GrpcClient::HasOverdueCall(const SessionId* id) const {
  const auto now = steady_clock::now();
  return std::any_of(calls_.begin(), calls_.end(), [&](const auto& call) {
    return call.second->session_id().get() == id && now > call.second->overdue_at();
  });
}

void GrpcClient::WaitForEnd(const SessionPtr& session, SessionStream* stream) {
  while (true) {
    const bool declare = !keeper_.AllDeclared(session);
    {
      MutexLock lock(&mu_);
      if (stopping_ || stream->done() || torn_down_epoch_ == session->epoch()) return;
      const bool late =
          session->id->late_puts > 0 && steady_clock::now() - late_since_ > kLateGrace;
      if (late || HasOverdueCall(session->id.get()) || session->lost_connection()) {
        counters.sessions_torn_down.fetch_add(1);
        return;
      }
      // Nothing signals when a call becomes overdue, so it looks.
      changed_.WaitFor(&mu_, kLookEvery);
    }
    // Declares namespaces whose declaration was lost (its caller's deadline), until the daemon has
    // them.
    if (declare) keeper_.DeclareAll(session).IgnoreError();
  }
}

// ---------------------------------------------------------------- for calls

SessionPtr GrpcClient::FindSession(const std::shared_ptr<SessionId>& id) {
  SessionPtr session = keeper_.session();
  MutexLock lock(&mu_);
  return !stopping_ && session != nullptr && session->id == id ? session : nullptr;
}

absl::StatusOr<DeclaredNamespaces::Ptr> GrpcClient::OpenNamespace(const NamespaceSpec& spec,
                                                                  Deadline deadline) {
  Keeper::Undeclared undeclared;
  absl::StatusOr<DeclaredNamespaces::Ptr> ns = keeper_.OpenNamespace(spec, deadline, &undeclared);
  if (undeclared.session != nullptr) {  // the session's thread is to declare it
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  }
  return ns;
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
      shared_from_this();  // the callback may drop the last other reference
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
  const SessionPtr session = keeper_.session();
  MutexLock lock(&mu_);
  if (session == nullptr || session->id.get() != &id || id.epoch <= torn_down_epoch_) return;
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

ClientStats GrpcClient::GetStats() const {
  ClientStats stats{.corrupt_chunks = counters.corrupt_chunks,
                    .bytes_received = counters.bytes_received,
                    .bytes_sent = counters.bytes_sent,
                    .late_slices = counters.late_slices,
                    .sessions_torn_down = counters.sessions_torn_down,
                    .bulk_fallbacks = counters.bulk_fallbacks,
                    .leases_reclaimed = counters.leases_reclaimed};
  keeper_.AddStats(&stats);
  return stats;
}

}  // namespace kvkeep::client
