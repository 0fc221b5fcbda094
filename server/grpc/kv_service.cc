#include "server/grpc/kv_service.h"

#include "server/grpc/byte_buffer.h"
#include "server/grpc/put_stream.h"
#include "server/grpc/to_grpc.h"
#include "server/grpc/watch_stream.h"
#include "server/requests/check_session.h"
#include "server/requests/named_chunks.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

KvService::KvService(Store* store, ServerState* state, Callers* callers)
    : store_(store), state_(state), callers_(callers) {}

grpc::ServerUnaryReactor* KvService::Reply(Context* context, const Begun& begun,
                                           const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  End(context, begun, status, reactor);
  return reactor;
}

void KvService::End(Context* context, const Begun& begun, const absl::Status& status,
                    grpc::ServerUnaryReactor* reactor) {
  state_->times.Note({Listener::kGrpc, begun.operation, status.code()}, begun.at,
                     [&] { return Requester{.peer = context->peer(), .keys = begun.keys}; });
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  reactor->Finish(ToGrpc(status, store_->incarnation()));
}

absl::StatusOr<SessionToken> KvService::SessionOf(const Context& context,
                                                  absl::string_view token) const {
  KVKEEP_ASSIGN_OR_RETURN(const TenantId tenant, callers_->Admit(context));
  return CheckSession(store_, &state_->counters, tenant, token);
}

template <typename Request>
absl::StatusOr<KvService::Subject> KvService::ParseSubject(const Context& context,
                                                           const Request& request) const {
  Subject subject;
  KVKEEP_ASSIGN_OR_RETURN(subject.session, SessionOf(context, request.session_token()));
  KVKEEP_ASSIGN_OR_RETURN(subject.chunks, ParseNamedChunks(*store_, subject.session, request));
  return subject;
}

grpc::ServerUnaryReactor* KvService::GetServerInfo(Context* context,
                                                   const v1::GetServerInfoRequest*,
                                                   v1::GetServerInfoResponse* response) {
  const Begun begun = Begin(Operation::kSession);
  const absl::StatusOr<TenantId> tenant = callers_->Admit(*context);
  if (!tenant.ok()) return Reply(context, begun, tenant.status());
  response->set_version(state_->version);
  response->set_incarnation(store_->incarnation().value());
  *response->mutable_limits() = ToLimits(store_->options(), *tenant);
  response->add_features("grpc");
  response->add_features("watch");
  if (store_->reaches_beyond()) response->add_features("remote");
  if (state_->local_path.load(std::memory_order_acquire)) response->add_features("shm");
  response->set_state(state_->serving.load(std::memory_order_acquire));
  return Reply(context, begun, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::SessionEvent>* KvService::OpenSession(
    Context* context, const v1::OpenSessionRequest* request) {
  return SessionStream::Start(store_, state_, &sessions_, callers_->Who(*context), *request);
}

grpc::ServerUnaryReactor* KvService::OpenNamespace(Context* context,
                                                   const v1::OpenNamespaceRequest* request,
                                                   v1::OpenNamespaceResponse* response) {
  const Begun begun = Begin(Operation::kSession);
  return Reply(context, begun, DoOpenNamespace(*context, *request, response));
}

absl::Status KvService::DoOpenNamespace(const Context& context,
                                        const v1::OpenNamespaceRequest& request,
                                        v1::OpenNamespaceResponse* response) {
  KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, SessionOf(context, request.session_token()));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec spec, ParseNamespaceSpec(request));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest ns, store_->OpenNamespace(session, spec));
  response->set_namespace_digest(std::string(ns.view()));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* KvService::Lookup(Context* context, const v1::LookupRequest* request,
                                            v1::LookupResponse* response) {
  const Begun begun = Begin(Operation::kLookup, request->keys().size() / ChunkKey::kSize);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();  // once a call
  const auto end = [this, context, begun, reactor](const absl::Status& status) {
    End(context, begun, status, reactor);
  };
  const absl::Status started = StartLookup(*context, *request, response, end);
  if (!started.ok()) end(started);
  return reactor;
}

absl::Status KvService::StartLookup(const Context& context, const v1::LookupRequest& request,
                                    v1::LookupResponse* response,
                                    std::function<void(const absl::Status&)> end) {
  KVKEEP_ASSIGN_OR_RETURN(const LeaseMode mode, ParseLeaseMode(request.lease_mode()));
  const BeyondOptions beyond{
      .wait = std::chrono::microseconds(request.remote_wait_us()),
      .recompute_per_key = std::chrono::microseconds(request.recompute_us_per_key())};
  KVKEEP_RETURN_IF_ERROR(beyond.Validate());
  KVKEEP_ASSIGN_OR_RETURN(Subject parsed, ParseSubject(context, request));
  const auto subject = std::make_shared<const Subject>(std::move(parsed));
  const LookupRequest lookup{.chunks = subject->chunks.view(),
                             .lease_mode = mode,
                             .client_request_id = request.client_request_id(),
                             .transient = request.transient(),
                             .beyond = beyond};
  const auto tell = [this, &context, response, subject, end = std::move(end)](
                        const absl::StatusOr<LookupResult>& result) {
    if (result.ok() && result->is_new_lease && context.IsCancelled()) {
      // The client's repetition, by which it reclaims the lease, may have been answered already.
      (void)store_->Release(subject->session, result->lease, 0);
      return end(absl::CancelledError("the client left"));
    }
    if (result.ok()) ToResponse(*result, subject->chunks.parts.size(), response);
    end(result.status());
  };
  const auto result = store_->LookupOrSearch(
      subject->session, lookup, [this, response, subject, again = lookup, tell]() mutable {
        response->set_remote_asked(true);
        again.after_search = true;
        tell(store_->Lookup(subject->session, again));
      });
  if (result.has_value()) tell(*result);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* KvService::Touch(Context* context, const v1::TouchRequest* request,
                                           v1::TouchResponse* response) {
  const Begun begun = Begin(Operation::kTouch, request->keys().size() / ChunkKey::kSize);
  const absl::StatusOr<Subject> subject = ParseSubject(*context, *request);
  if (!subject.ok()) return Reply(context, begun, subject.status());
  const absl::StatusOr<uint64_t> touched = store_->Touch(subject->session, subject->chunks.view());
  if (touched.ok()) response->set_touched_chunks(*touched);
  return Reply(context, begun, touched.status());
}

grpc::ServerUnaryReactor* KvService::Prefetch(Context* context, const v1::PrefetchRequest* request,
                                              v1::PrefetchResponse* response) {
  const Begun begun = Begin(Operation::kPrefetch, request->keys().size() / ChunkKey::kSize);
  const absl::StatusOr<Subject> subject = ParseSubject(*context, *request);
  if (!subject.ok()) return Reply(context, begun, subject.status());
  const absl::StatusOr<PrefetchResult> result =
      store_->Prefetch(subject->session, subject->chunks.view());
  if (result.ok()) {
    response->set_started_chunks(result->started_chunks);
    response->set_ready_chunks(result->ready_chunks);
  }
  return Reply(context, begun, result.status());
}

grpc::ServerUnaryReactor* KvService::Release(Context* context, const v1::ReleaseRequest* request,
                                             v1::ReleaseResponse*) {
  const Begun begun = Begin(Operation::kRelease);
  return Reply(context, begun, DoRelease(*context, *request));
}

absl::Status KvService::DoRelease(const Context& context, const v1::ReleaseRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, SessionOf(context, request.session_token()));
  return store_->Release(session, LeaseId(request.lease_id()), request.keep_keys());
}

grpc::ServerUnaryReactor* KvService::Delete(Context* context, const v1::DeleteRequest* request,
                                            v1::DeleteResponse* response) {
  const Begun begun = Begin(Operation::kDelete, request->keys().size() / ChunkKey::kSize);
  const absl::StatusOr<Subject> subject = ParseSubject(*context, *request);
  if (!subject.ok()) return Reply(context, begun, subject.status());
  const absl::StatusOr<uint64_t> deleted = store_->Delete(subject->session, subject->chunks.view());
  if (!deleted.ok()) return Reply(context, begun, deleted.status());
  response->set_deleted_chunks(*deleted);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();  // once a call
  store_->WhenDeleted(request->durable(),
                      [this, context, begun, reactor](const absl::Status& status) {
                        End(context, begun, status, reactor);
                      });
  return reactor;
}

absl::StatusOr<EventReader> KvService::DoWatch(const Context& context,
                                               const v1::WatchRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, SessionOf(context, request.session_token()));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest ns,
                          ParseNamespaceDigest(request.namespace_digest()));
  return store_->Watch(session, ns);
}

grpc::ServerWriteReactor<v1::WatchEvents>* KvService::Watch(Context* context,
                                                            const v1::WatchRequest* request) {
  return WatchStream::Start(state_, store_->incarnation(), DoWatch(*context, *request));
}

absl::StatusOr<GetPlan> KvService::ParseGet(const Context& context,
                                            const grpc::ByteBuffer& buffer) const {
  v1::GetRequest request;
  if (!ParseByteBuffer(buffer, &request)) {
    return absl::InvalidArgumentError("GetRequest: not valid protobuf");
  }
  KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, SessionOf(context, request.session_token()));
  return ToGetPlan(*store_, session, request);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* KvService::Get(Context* context,
                                                           const grpc::ByteBuffer* request) {
  return GetStream::Start(store_, state_, context, ParseGet(*context, *request));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* KvService::Put(Context* context) {
  return PutStream::Start(store_, state_, context, callers_->Admit(*context));
}

}  // namespace kvkeep
