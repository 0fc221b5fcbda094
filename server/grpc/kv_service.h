// KvService: the gRPC service kvkeep.v1.KvCache over a Store.
//
// Small calls use generated messages and answer within the handler; Get and Put are raw, so that
// payloads are moved without a copy of gRPC's. Callers tells who calls; nothing else differs
// between listeners. Handlers run on gRPC's callback threads: they validate, call the store and
// never wait. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "server/access/callers.h"
#include "server/grpc/get_stream.h"
#include "server/grpc/session_stream.h"
#include "server/observe/server_state.h"
#include "server/requests/convert.h"
#include "tiers/store/store.h"

namespace kvkeep {

namespace kv_service_internal {
// Which calls are raw: the two that carry payload.
using Kv = v1::KvCache;
using Small = Kv::WithCallbackMethod_GetServerInfo<Kv::WithCallbackMethod_OpenSession<
    Kv::WithCallbackMethod_OpenNamespace<Kv::WithCallbackMethod_Lookup<
        Kv::WithCallbackMethod_Touch<Kv::WithCallbackMethod_Prefetch<Kv::WithCallbackMethod_Release<
            Kv::WithCallbackMethod_Delete<Kv::WithCallbackMethod_Watch<Kv::Service>>>>>>>>>;
using Base = Kv::WithRawCallbackMethod_Get<Kv::WithRawCallbackMethod_Put<Small>>;
}  // namespace kv_service_internal

class KvService final : public kv_service_internal::Base {
 public:
  // All must outlive the service and the calls it serves.
  KvService(Store* store, ServerState* state, Callers* callers);

  SessionStreams& sessions() { return sessions_; }

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* GetServerInfo(Context* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerWriteReactor<v1::SessionEvent>* OpenSession(
      Context* context, const v1::OpenSessionRequest* request) override;
  grpc::ServerUnaryReactor* OpenNamespace(Context* context, const v1::OpenNamespaceRequest* request,
                                          v1::OpenNamespaceResponse* response) override;
  grpc::ServerUnaryReactor* Lookup(Context* context, const v1::LookupRequest* request,
                                   v1::LookupResponse* response) override;
  grpc::ServerUnaryReactor* Touch(Context* context, const v1::TouchRequest* request,
                                  v1::TouchResponse* response) override;
  grpc::ServerUnaryReactor* Prefetch(Context* context, const v1::PrefetchRequest* request,
                                     v1::PrefetchResponse* response) override;
  grpc::ServerUnaryReactor* Release(Context* context, const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse* response) override;
  grpc::ServerUnaryReactor* Delete(Context* context, const v1::DeleteRequest* request,
                                   v1::DeleteResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchEvents>* Watch(Context* context,
                                                   const v1::WatchRequest* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Get(Context* context,
                                                  const grpc::ByteBuffer* request) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Put(Context* context) override;

 private:
  // The session and the chunks that most requests name.
  struct Subject {
    SessionToken session;
    OwnedChunkSet chunks;
  };
  // A small call under way.
  struct Begun {
    Operation operation;
    MonotonicTime at;
    size_t keys;  // that it is about
  };
  // Admits the caller and returns the session, which must be of the caller's tenant.
  absl::StatusOr<SessionToken> SessionOf(const Context& context, absl::string_view token) const;
  template <typename Request>
  absl::StatusOr<Subject> ParseSubject(const Context& context, const Request& request) const;
  absl::StatusOr<GetPlan> ParseGet(const Context& context, const grpc::ByteBuffer& buffer) const;
  absl::Status DoOpenNamespace(const Context& context, const v1::OpenNamespaceRequest& request,
                               v1::OpenNamespaceResponse* response);
  // Calls `end` with the lookup's status, later if the lookup asks beyond the node. On an error the
  // request is refused and `end` is not called.
  absl::Status StartLookup(const Context& context, const v1::LookupRequest& request,
                           v1::LookupResponse* response,
                           std::function<void(const absl::Status&)> end);
  absl::StatusOr<EventReader> DoWatch(const Context& context, const v1::WatchRequest& request);
  absl::Status DoRelease(const Context& context, const v1::ReleaseRequest& request);
  Begun Begin(Operation operation, size_t keys = 0) const {
    return {operation, state_->times.Now(), keys};
  }
  grpc::ServerUnaryReactor* Reply(Context* context, const Begun& begun, const absl::Status& status);
  void End(Context* context, const Begun& begun, const absl::Status& status,
           grpc::ServerUnaryReactor* reactor);

  Store* const store_;
  ServerState* const state_;
  Callers* const callers_;  // of the listeners that have this service
  SessionStreams sessions_;
};

}  // namespace kvkeep
