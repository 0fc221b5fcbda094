// UnaryCall: one small request and reply through the generated stub. Internal to the library.
#pragma once

#include <memory>
#include <utility>

#include "client/grpc/grpc_client.h"

namespace kvkeep::client {

template <typename Request, typename Response>
class UnaryCall final : public InFlightCall {
 public:
  using Method = void (v1::KvCache::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  // `done` gets the request back, to repeat the call.
  using Done = absl::AnyInvocable<void(absl::Status, Request&, Response&) &&>;

  // `done` runs exactly once, also when the call cannot start.
  static void Start(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session, Method method,
                    Request request, Deadline deadline, Done done) {
    auto call = std::make_shared<UnaryCall>(grpc_client, std::move(session), std::move(request),
                                            deadline, std::move(done));
    if (absl::Status begun = grpc_client->Begin(call); !begun.ok()) {
      std::move(call->done_)(std::move(begun), call->request_, call->response_);
      return;
    }
    UnaryCall* const raw = call.get();             // the grpc_client keeps it until End
    const SessionPtr connection = call->session_;  // the call may be over before its start returns
    (connection->stub->async()->*method)(
        raw->context(), &raw->request_, &raw->response_,
        [raw](grpc::Status status) { raw->Finish(FromGrpc(status)); });
  }

  UnaryCall(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session, Request request,
            Deadline deadline, Done done)
      : InFlightCall(std::move(grpc_client), std::move(session), deadline),
        request_(std::move(request)),
        done_(std::move(done)) {}

 private:
  void Finish(absl::Status status) {
    Disconnect();
    grpc_client_->End(this, [this, status = std::move(status)]() mutable {
      std::move(done_)(std::move(status), request_, response_);
    });
  }

  Request request_;
  Response response_;
  Done done_;
};

}  // namespace kvkeep::client
